"""A program whose main thread has ended while another thread lives: a zombie in /proc/PID/stat."""

from __future__ import annotations

import platform

BYTES = 64 << 20
_EXIT = {"x86_64": 60, "aarch64": 93, "riscv64": 93}[platform.machine()]
"""The number of exit(2), which ends one thread."""

PROGRAM = f"""
import ctypes, os, threading, time
held = bytearray({BYTES})
files = [open("/dev/null") for _ in range(20)]
main = os.getpid()
def live_on():
    while open("/proc/self/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print("up", flush=True)
    time.sleep(3600)
threading.Thread(target=live_on, daemon=True).start()
ctypes.CDLL(None).syscall({_EXIT}, 0)
"""
"""Prints a line once its main thread has ended."""
