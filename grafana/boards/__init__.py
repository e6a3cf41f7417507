"""The boards of Trainwarden."""

from boards import fleet, gpu, health, inference, night, run, time_spent, workers
from boards.board import Board

BOARDS: tuple[Board, ...] = (
    run.BOARD,
    night.BOARD,
    time_spent.BOARD,
    gpu.BOARD,
    workers.BOARD,
    inference.BOARD,
    health.BOARD,
    fleet.BOARD,
)
