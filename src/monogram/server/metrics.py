"""Prometheus metrics. With several workers they are summed through files (multiprocess mode of the client)."""

from __future__ import annotations

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("monogram_requests", "Requests answered", ("route", "status"), registry=registry)
        self.latency = Histogram(
            "monogram_request_seconds",
            "From the first byte to the answer",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )
        self.kernel = Counter("monogram_kernel_seconds", "Time inside the kernels", ("model",), registry=registry)
        self.batches = Histogram(
            "monogram_batch_rows", "Histories ranked in one kernel call", ("model",), buckets=ROWS, registry=registry
        )
        self.reloads = Counter("monogram_reloads", "Reloads of a model", ("model", "outcome"), registry=registry)
        self.stored = Gauge(
            "monogram_events_stored",
            "Number of the last event stored",
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        self.applied = Gauge(
            "monogram_events_applied", "Number of the last event in the model", registry=registry,
            multiprocess_mode="mostrecent",
        )  # fmt: skip
        self.models = Gauge(
            "monogram_model_info", "1 for each model", ("model", "kind", "users", "items"), registry=registry,
            multiprocess_mode="mostrecent",
        )  # fmt: skip

    def model(self, name: str, kind: str, users: int, items: int) -> None:
        """Set the kind and the sizes of a model."""
        if not os.environ.get(FOLDER):  # values in multiprocess files cannot be cleared
            self.models.clear()
        self.models.labels(name, kind, users, items).set(1)

    def text(self) -> bytes:
        """The metrics of all workers in Prometheus' format."""
        if not os.environ.get(FOLDER):
            return generate_latest(self.registry)
        combined = CollectorRegistry()
        multiprocess.MultiProcessCollector(combined)  # type: ignore[no-untyped-call]
        return generate_latest(combined)
