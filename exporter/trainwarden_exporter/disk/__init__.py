"""Disks of a run: free space and write speed."""
