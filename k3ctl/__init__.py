"""k3ctl: how people and scripts see and steer a pod. Imports no torch, ever."""
