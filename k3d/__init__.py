"""k3d: the daemon of every node of a pod."""

__version__ = "0.1.0"
