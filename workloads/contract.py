"""The interface of workload classes, `testbed.workload.contract.Workload`, with a complete example.

The federation sees a model as one vector of 32-bit floats and a client's work as the change of that vector. A
user-defined class (``dataset: package.module:ClassName``) needs five members and no base class; it need not use torch.
It is constructed as ``ClassName(section, population, seed, **section.options)`` in every process that trains or
evaluates (options that it does not take are refused). So construction must be deterministic and fast; large data are
best created when a client first trains.

Further capabilities are needed only by some features: ``label_counts`` by availability models that depend on labels,
gradients of single samples by DP-SGD, samples to inspect by attacks; see `testbed.workload.contract`.

A complete example, in which every client estimates a mean by gradient steps:

    class MeanEstimation:
        dimension = 16

        def __init__(self, section, population, seed, spread=1.0):
            self.section = section
            data = np.random.default_rng(seed).normal(3.0, spread, (population, 30, 16))
            self.data = data.astype(np.float32)
            self.sample_counts = np.full(population, 30, dtype=np.int64)

        def initial_model(self):
            return np.zeros(16, dtype=np.float32)

        def train(self, client, model, round_number):
            local = np.array(model)
            for _ in range(self.section.epochs):
                local -= self.section.learning_rate * (local - self.data[client].mean(axis=0))
            loss = float(np.square(self.data[client] - local).mean())
            return LocalUpdate(local - model, 30, loss, examples_processed=30 * self.section.epochs)

        def evaluate(self, model):
            error = float(np.square(model - 3.0).mean())
            return Evaluation(loss=error, accuracy=float(error < 0.1), samples=1)
"""

from testbed.workload.contract import Evaluation, EvaluationWithoutLoss, LabelledEvaluation, LocalUpdate, Workload

__all__ = ["Evaluation", "EvaluationWithoutLoss", "LabelledEvaluation", "LocalUpdate", "Workload"]
