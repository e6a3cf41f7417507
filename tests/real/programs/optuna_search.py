"""A search of Optuna.

Arguments: trials, seconds per trial, and the URL of a database instead of a journal.
"""

from __future__ import annotations

import sys

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from truth import beat_callbacks, evaluation_batch, step_done

trials, seconds = int(sys.argv[1]), float(sys.argv[2])


def objective(trial):
    evaluation_batch()
    step_done(trial.number, seconds)
    return trial.suggest_float("x", -1, 1) ** 2


# the bench chaos finds a program by an argument that it does not read
database = next((argument for argument in sys.argv[3:] if "://" in argument), None)
storage = database or JournalStorage(JournalFileBackend("journal.log"))
study = optuna.create_study(study_name="s", storage=storage, load_if_exists=True)
done = sum(one.state.is_finished() for one in study.trials)
study.optimize(objective, n_trials=trials - done, callbacks=beat_callbacks("optuna"))
