"""What the daemons need of a home, in one import: its paths, the secret and the run files."""

from k3d.store.paths import (
    banks_directory,
    checkout,
    make_home,
    resolve_home,
    run_directory,
    secret_path,
    state_path,
    telemetry_path,
)
from k3d.store.run_file import RunFile, log_path, read_run_file, read_run_files, run_file_path
from k3d.store.secret import create_secret, http_token, read_secret

__all__ = [
    "RunFile",
    "banks_directory",
    "checkout",
    "create_secret",
    "http_token",
    "log_path",
    "make_home",
    "read_run_file",
    "read_run_files",
    "read_secret",
    "resolve_home",
    "run_directory",
    "run_file_path",
    "secret_path",
    "state_path",
    "telemetry_path",
]
