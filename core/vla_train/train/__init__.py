"""The training loop and what it is made of. Imports no torch by itself: the launcher reads parts of it first.

What the loop asks of the module that a `ModelEntry` builds:
    forward(batch) -> {loss name: scalar}; the total is their sum, weighted by `train.loss_weights`.
What it asks for if it is there:
    detach_frozen() -> {dotted name: module}: takes networks that are never trained out of the model; they are placed,
        but neither sharded, nor optimised, nor written into checkpoints.
    frozen_on_host: names of those that stay in host memory.
    unused_parameters_possible: a trained parameter may get no gradient in some step.
    loss_counts(batch) -> {loss name: number}: how many elements a masked loss is the mean of, so that several ranks or
        accumulated batches give the loss of the whole; `batch` is on the host.
    predicts_actions: false if the model as configured has nothing to evaluate.
"""
