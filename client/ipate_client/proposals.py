"""Proposals of runs by keyword arguments: `propose_pate`, `plan_pate` and so on.

Written by `python -m client.generate`; do not edit it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from ipate_client.proposing import Proposing, planning, proposing

if TYPE_CHECKING:
    from ipate_client.documents import Dataset


class Proposals(Proposing):
    """Proposals of a study. Pass a dataset only if the study has more than one of that kind."""

    def _neighbours(
        self,
        *,
        title: str,
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        public_dataset: Dataset | int | None = None,
        test_dataset: Dataset | int | None = None,
        labelled_dataset: Dataset | int | None = None,
        student_learner: Literal[
            "consistency", "shares", "boosting", "random_forest", "logistic_regression", "nearest_neighbour", "cnn"
        ]
        | None = None,
        student_parameters: Mapping[str, Any] | None = None,
        wanted_labels: int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        representation: Literal[
            "standardised",
            "thresholds",
            "evened",
            "interactions",
            "whitened",
            "wavelets",
            "patches",
            "embedding",
            "encoder",
            "learned",
            "words",
        ]
        | None = None,
        representation_parameters: Mapping[str, Any] | None = None,
        encoder: str | None = None,
        stated: bool | None = None,
        rounds: int | None = None,
        first_queries: int | None = None,
        embedded: bool | None = None,
        sigma: float | None = None,
        radius_share: float | None = None,
        kernel: Literal["uniform", "epanechnikov"] | None = None,
        records: float | None = None,
    ) -> dict[str, Any]:
        """Propose a run of the method *neighbours*.

        Args:
            title: Title of the run.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            public_dataset: Public points; by default the study's only public dataset.
            test_dataset: Data to evaluate the model; by default the study's only test dataset.
            labelled_dataset: Public dataset whose labels the student also learns from.
            student_learner: The student; by default a suggested one.
            student_parameters: Parameters of the student.
            wanted_labels: Number of labels after which the run stops.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            representation: Representation. The space in which distances between neighbours are measured, fitted
                only on the public points.
            representation_parameters: Representation parameters. Parameters you leave out take their default
                values.
            encoder: Encoder. The run learns from vectors that a public network computes from the records.
            stated: The representation was made without the private data. You confirm that the representation's
                requirements are met. Default: False.
            rounds: Rounds. From the second round on, votes correct the current student's predictions. From 1 to 2.
                Default: 1.
            first_queries: Points in the first round. Leave empty to use one fifteenth of all queried points, up to
                600. From 1 to 1e+09.
            embedded: Compare points by the student's inner layer in the second round. This applies only if the
                first round's student has an inner layer, as neural networks do. Default: False.
            sigma: Noise in each count (σ). If you leave this empty, the forecast sets the value. From 0.001 to
                16384.
            radius_share: Radius, as the percentage of public points within it. If you leave this empty, the
                forecast sets the value. From 1e-09 to 1.
            kernel: Record weight. Default: uniform.
            records: Records per holder. A public number for the forecast. It is not counted from the data. From 1
                to 10000. Default: 1.0.
        """
        given = {**locals()}
        return self._proposal(
            "neighbours",
            given,
            (
                "representation",
                "representation_parameters",
                "encoder",
                "stated",
                "rounds",
                "first_queries",
                "embedded",
                "sigma",
                "radius_share",
                "kernel",
                "records",
            ),
            "private public test",
        )

    propose_neighbours = proposing(_neighbours)
    plan_neighbours = planning(_neighbours)

    def _pate(
        self,
        *,
        title: str,
        learner: Literal["random_forest", "logistic_regression", "nearest_neighbour", "cnn"],
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        public_dataset: Dataset | int | None = None,
        test_dataset: Dataset | int | None = None,
        labelled_dataset: Dataset | int | None = None,
        student_learner: Literal[
            "consistency", "shares", "boosting", "random_forest", "logistic_regression", "nearest_neighbour", "cnn"
        ]
        | None = None,
        student_parameters: Mapping[str, Any] | None = None,
        wanted_labels: int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        teachers: int | None = None,
        learner_parameters: Mapping[str, Any] | None = None,
        unlabelled: Literal["images", "always", "never"] | None = None,
        aggregator: Mapping[str, Any] | None = None,
        weight_scheme: Literal["gdp", "calibrated", "proportional"] | None = None,
        small_groups: Literal["merge", "leave_out", "copy"] | None = None,
        on_exhausted: Literal["stop", "retire"] | None = None,
        variant: Literal["standard", "upsampling", "weighting", "vanishing"] = "standard",
    ) -> dict[str, Any]:
        """Propose a run of the method *pate*.

        Args:
            title: Title of the run.
            learner: Learner for teachers.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            public_dataset: Public points; by default the study's only public dataset.
            test_dataset: Data to evaluate the model; by default the study's only test dataset.
            labelled_dataset: Public dataset whose labels the student also learns from.
            student_learner: The student; by default a suggested one.
            student_parameters: Parameters of the student.
            wanted_labels: Number of labels after which the run stops.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            teachers: Number of teachers. If you leave this empty, the plan compares several numbers and uses the
                best. From 1 to 1e+09.
            learner_parameters: Learner parameters. Parameters you leave out take their default values.
            unlabelled: Teachers also learn from the public points. Each teacher assumes that public points close
                together have the same class. Teachers share only the public points, without their labels. Default:
                images.
            aggregator: Aggregator. Name and parameters, before they are scaled to the number of votes.
            weight_scheme: Weights. Default: gdp.
            small_groups: How to treat groups that are too small for a teacher. Default: merge.
            on_exhausted: What happens when a group's share is used up. Default: stop.
            variant: Variant of the method.
        """
        given = {**locals()}
        return self._proposal(
            "pate",
            given,
            (
                "teachers",
                "learner",
                "learner_parameters",
                "unlabelled",
                "aggregator",
                "weight_scheme",
                "small_groups",
                "on_exhausted",
            ),
            "private public test",
        )

    propose_pate = proposing(_pate)
    plan_pate = planning(_pate)

    def _sgd(
        self,
        *,
        title: str,
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        public_dataset: Dataset | int | None = None,
        test_dataset: Dataset | int | None = None,
        labelled_dataset: Dataset | int | None = None,
        student_learner: Literal[
            "consistency", "shares", "boosting", "random_forest", "logistic_regression", "nearest_neighbour", "cnn"
        ]
        | None = None,
        student_parameters: Mapping[str, Any] | None = None,
        wanted_labels: int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        representation: Literal[
            "standardised",
            "thresholds",
            "evened",
            "interactions",
            "whitened",
            "wavelets",
            "patches",
            "embedding",
            "encoder",
            "learned",
            "words",
        ]
        | None = None,
        representation_parameters: Mapping[str, Any] | None = None,
        encoder: str | None = None,
        stated: bool | None = None,
        steps: int | None = None,
        clip_norm: float | None = None,
        step_size: float | None = None,
        publish: Literal["student", "model"] | None = None,
        balance: bool | None = None,
        rounds: int | None = None,
        sigma: float | None = None,
        ridge: float | None = None,
    ) -> dict[str, Any]:
        """Propose a run of the method *sgd*, variant *individual*.

        Args:
            title: Title of the run.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            public_dataset: Public points; by default none.
            test_dataset: Data to evaluate the model; by default the study's only test dataset.
            labelled_dataset: Public dataset whose labels the student also learns from.
            student_learner: The student; by default a suggested one.
            student_parameters: Parameters of the student.
            wanted_labels: Number of labels after which the run stops.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            representation: Representation. How records are turned into the model's input. This is fitted to the
                public points only. If there are none, or if you use the convolutional network, keep the default.
            representation_parameters: Representation parameters. Parameters you leave out take their default
                values.
            encoder: Encoder. The run learns from vectors that a public network computes from the records.
            stated: The representation was made without the private data. You confirm that the representation's
                requirements are met. Default: False.
            steps: Gradient steps. Leave this empty to set the value automatically. From 1 to 10000.
            clip_norm: Clipping norm. Leave this empty to set the value automatically. From 0.0001 to 10000.
            step_size: Step size. Leave this empty to set the value automatically. From 1e-06 to 1e+06.
            publish: Result to publish. By default the student if labelled public points show that it is better,
                otherwise the model.
            balance: Balance the classes. The model answers as if all classes were equally frequent, so it finds
                rare classes more often. Overall, fewer of its answers are right, often far fewer. Probabilities and
                privacy costs stay the same. Default: False.
            rounds: Rounds. In the second round, the model's input is the output of the first student's inner layer.
                From 1 to 2. Default: 1.
            sigma: Noise multiplier σ. Leave this empty to set the value automatically. From 0.1 to 4096.
            ridge: Ridge. Added to the curvature of the public points, in units of a step's noise. A larger value
                shortens steps in directions dominated by noise. Leave this empty to set the value automatically.
                From 0 to 1e+06.
        """
        given = {**locals(), "variant": "individual"}
        return self._proposal(
            "sgd",
            given,
            (
                "representation",
                "representation_parameters",
                "encoder",
                "stated",
                "steps",
                "clip_norm",
                "step_size",
                "publish",
                "balance",
                "rounds",
                "sigma",
                "ridge",
            ),
            "private test",
        )

    propose_sgd = proposing(_sgd)
    plan_sgd = planning(_sgd)

    def _sgd_samples(
        self,
        *,
        title: str,
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        public_dataset: Dataset | int | None = None,
        test_dataset: Dataset | int | None = None,
        labelled_dataset: Dataset | int | None = None,
        student_learner: Literal[
            "consistency", "shares", "boosting", "random_forest", "logistic_regression", "nearest_neighbour", "cnn"
        ]
        | None = None,
        student_parameters: Mapping[str, Any] | None = None,
        wanted_labels: int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        representation: Literal[
            "standardised",
            "thresholds",
            "evened",
            "interactions",
            "whitened",
            "wavelets",
            "patches",
            "embedding",
            "encoder",
            "learned",
            "words",
        ]
        | None = None,
        representation_parameters: Mapping[str, Any] | None = None,
        encoder: str | None = None,
        stated: bool | None = None,
        steps: int | None = None,
        clip_norm: float | None = None,
        step_size: float | None = None,
        publish: Literal["student", "model"] | None = None,
        balance: bool | None = None,
        network: Literal["linear", "mlp", "cnn"] | None = None,
        expected: float | None = None,
        momentum: float | None = None,
        variant: Literal[
            "sample", "scale", "standard", "without_strictest", "group_after_group", "non_private"
        ] = "sample",
    ) -> dict[str, Any]:
        """Propose a run of the method *sgd*.

        Args:
            title: Title of the run.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            public_dataset: Public points; by default none.
            test_dataset: Data to evaluate the model; by default the study's only test dataset.
            labelled_dataset: Public dataset whose labels the student also learns from.
            student_learner: The student; by default a suggested one.
            student_parameters: Parameters of the student.
            wanted_labels: Number of labels after which the run stops.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            representation: Representation. How records are turned into the model's input. This is fitted to the
                public points only. If there are none, or if you use the convolutional network, keep the default.
            representation_parameters: Representation parameters. Parameters you leave out take their default
                values.
            encoder: Encoder. The run learns from vectors that a public network computes from the records.
            stated: The representation was made without the private data. You confirm that the representation's
                requirements are met. Default: False.
            steps: Gradient steps. Leave this empty to set the value automatically. From 1 to 10000.
            clip_norm: Clipping norm. Leave this empty to set the value automatically. From 0.0001 to 10000.
            step_size: Step size. Leave this empty to set the value automatically. From 1e-06 to 1e+06.
            publish: Result to publish. By default the student if labelled public points show that it is better,
                otherwise the model.
            balance: Balance the classes. The model answers as if all classes were equally frequent, so it finds
                rare classes more often. Overall, fewer of its answers are right, often far fewer. Probabilities and
                privacy costs stay the same. Default: False.
            network: Model. Default: linear.
            expected: Holders drawn per step, on average. Leave this empty to set the value automatically. From 1 to
                1e+09.
            momentum: Momentum. Share of each update that is carried over to the next. Leave this empty to set the
                value automatically. From 0 to 0.999.
            variant: Variant of the method.
        """
        given = {**locals()}
        return self._proposal(
            "sgd",
            given,
            (
                "representation",
                "representation_parameters",
                "encoder",
                "stated",
                "steps",
                "clip_norm",
                "step_size",
                "publish",
                "balance",
                "network",
                "expected",
                "momentum",
            ),
            "private test",
        )

    propose_sgd_samples = proposing(_sgd_samples)
    plan_sgd_samples = planning(_sgd_samples)

    def _counts(
        self,
        *,
        title: str,
        column: str,
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        across: str | None = None,
        bins: int | None = None,
        weighing: Literal["promise", "alike"] | None = None,
    ) -> dict[str, Any]:
        """Propose a run of the method *counts*.

        Args:
            title: Title of the run.
            column: Column. A column of the private dataset, or the dataset's classes. The schema lists the values
                of each column.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            across: Second column. People are counted for each pair of values.
            bins: Number of bins for a numeric column. Bins have equal width across the range declared in the
                schema. From 2 to 100. Default: 10.
            weighing: How people are counted. “Weighted by promise” adds the least noise, but the counts are
                estimates. “All equally” counts everyone as one and adds as much noise as the smallest ε needs.
                Default: promise.
        """
        given = {**locals()}
        return self._proposal(
            "counts",
            given,
            (
                "column",
                "across",
                "bins",
                "weighing",
            ),
            "private",
        )

    propose_counts = proposing(_counts)
    plan_counts = planning(_counts)

    def _synthesis(
        self,
        *,
        title: str,
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        rows: int | None = None,
        bins: int | None = None,
    ) -> dict[str, Any]:
        """Propose a run of the method *synthesis*, variant *marginals*.

        Args:
            title: Title of the run.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            rows: Synthetic rows. The number of rows does not change what people are charged. From 100 to 200000.
            bins: Number of bins for a numeric column. Bins have equal width across the range declared in the
                schema. Numbers in synthetic rows are only as precise as these bins. From 2 to 100. Default: 100.
        """
        given = {**locals(), "variant": "marginals"}
        return self._proposal(
            "synthesis",
            given,
            (
                "rows",
                "bins",
            ),
            "private",
        )

    propose_synthesis = proposing(_synthesis)
    plan_synthesis = planning(_synthesis)

    def _synthesis_deniability(
        self,
        *,
        title: str,
        purpose: str = "",
        private_dataset: Dataset | int | None = None,
        batch_size: int | None = None,
        seed: int | None = None,
        rehearsed: Mapping[str, Any] | None = None,
        released: int | None = None,
        plausible: int | None = None,
        gamma: float | None = None,
        epsilon0: float | None = None,
        fewest: int | None = None,
        most: int | None = None,
        values: int | None = None,
        network: float | None = None,
    ) -> dict[str, Any]:
        """Propose a run of the method *synthesis*, variant *deniability*.

        Args:
            title: Title of the run.
            purpose: Why the run is needed, for the person who approves it.
            private_dataset: People's records; by default the study's only private dataset.
            batch_size: Number of queries or steps that are released together.
            seed: Seed; only for rehearsals.
            rehearsed: Settings of a rehearsal: levels, accounting, conversion.
            released: Rows to release. Each row has its own cost. The plan shows the total. From 1 to 100000.
                Default: 1000.
            plausible: Plausible seeds (k). A row is released only if about this many records could equally well
                have been its seed. From 2 to 100000. Default: 50.
            gamma: How similar plausible seeds are (γ). Records are plausible seeds of a row if their probabilities
                of producing it lie between the same two powers of γ. From 1.01 to 1000. Default: 4.0.
            epsilon0: ε₀ for the test. The number of plausible seeds is compared with k plus Laplace noise of scale
                1/ε₀. From 0.01 to 100. Default: 1.0.
            fewest: Minimum number of redrawn columns (ω). All other columns are copied from the seed. The classes
                count as one column. From 0 to 1000.
            most: Maximum number of redrawn columns (ω). For each row, the number is drawn at random between the
                minimum and this maximum. From 0 to 1000.
            values: Number of values per numeric column. Bins of equal width across the range declared in the
                schema. From 2 to 100. Default: 20.
            network: ε for the network. This ε applies separately to the quarter of the records that determines the
                network's structure and to the quarter that determines its parameters. From 0.01 to 100. Default:
                1.0.
        """
        given = {**locals(), "variant": "deniability"}
        return self._proposal(
            "synthesis",
            given,
            (
                "released",
                "plausible",
                "gamma",
                "epsilon0",
                "fewest",
                "most",
                "values",
                "network",
            ),
            "private",
        )

    propose_synthesis_deniability = proposing(_synthesis_deniability)
    plan_synthesis_deniability = planning(_synthesis_deniability)
