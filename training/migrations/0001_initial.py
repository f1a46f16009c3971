"""Datasets, runs and what they leave behind."""

import uuid

from django.conf import settings
from django.db import migrations, models
from django.db.models import CASCADE, PROTECT, SET_NULL, F, Q

from common.migrations._parts import CHAINED, ID, actor, check, foreign, moment, unique

USER = settings.AUTH_USER_MODEL
#: Work that one worker does at a time.
PART = (
    ("state", models.CharField(default="pending", max_length=10)),
    ("artifact", models.CharField(blank=True, max_length=200)),
    ("claimed_by", models.CharField(blank=True, max_length=80)),
    ("heartbeat", models.DateTimeField(blank=True, null=True)),
    ("deaths", models.PositiveIntegerField(default=0)),
)


class Migration(migrations.Migration):
    initial = True

    dependencies = [("consent", "0001_initial"), migrations.swappable_dependency(USER)]

    operations = [
        migrations.CreateModel(
            "Dataset",
            [
                ID,
                foreign("study", "consent.study", related_name="datasets"),
                ("name", models.CharField(max_length=100)),
                ("kind", models.CharField(max_length=10)),
                ("schema", models.JSONField()),
                ("rows", models.PositiveIntegerField()),
                ("holders", models.PositiveIntegerField(default=0)),
                ("most_records", models.PositiveIntegerField(blank=True, null=True)),
                ("seen_classes", models.JSONField(blank=True)),
                ("provenance", models.TextField(blank=True)),
                ("artifact", models.CharField(max_length=200)),
                ("digest", models.CharField(max_length=64)),
                foreign("imported_by", USER, SET_NULL, blank=True, null=True),
                moment("imported_at"),
                ("removed_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "dataset",
                "ordering": ["study", "kind", "name"],
                "constraints": [unique("dataset_name_is_unique_in_a_study", "study", "name")],
            },
        ),
        migrations.CreateModel(
            "Run",
            [
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                foreign("study", "consent.study", related_name="runs"),
                ("title", models.CharField(max_length=200)),
                ("purpose", models.TextField(blank=True)),
                ("status", models.CharField(default="draft", max_length=10)),
                ("rehearsal", models.BooleanField(default=False)),
                ("seed", models.PositiveBigIntegerField(blank=True, null=True)),
                ("rehearsed", models.JSONField(blank=True, default=dict)),
                foreign("private_dataset", "training.dataset"),
                foreign("public_dataset", "training.dataset", blank=True, null=True),
                foreign("test_dataset", "training.dataset", blank=True, null=True),
                ("method", models.CharField(default="pate", max_length=20)),
                ("choices", models.JSONField(blank=True, default=dict)),
                ("student_learner", models.CharField(blank=True, max_length=40)),
                ("student_parameters", models.JSONField(blank=True, default=dict)),
                ("variant", models.CharField(blank=True, default="weighting", max_length=20)),
                ("batch_size", models.PositiveIntegerField(default=50)),
                ("wanted_labels", models.PositiveIntegerField(blank=True, null=True)),
                ("share", models.FloatField(default=1.0)),
                foreign("created_by", USER, SET_NULL, null=True),
                moment("created_at"),
                ("proposal_key", models.CharField(blank=True, max_length=100)),
                ("proposal_digest", models.CharField(blank=True, max_length=64)),
                ("revision", models.PositiveIntegerField(default=1)),
                foreign("approved_by", USER, SET_NULL, blank=True, null=True),
                ("approved_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("spending_began_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("heartbeat", models.DateTimeField(blank=True, null=True)),
                ("claimed_by", models.CharField(blank=True, max_length=80)),
                ("plan", models.JSONField(blank=True, default=dict)),
                ("snapshot_at", models.DateTimeField(blank=True, null=True)),
                ("consent_sequence", models.PositiveBigIntegerField(blank=True, null=True)),
                ("assignment", models.CharField(blank=True, max_length=200)),
                ("prepared", models.FloatField(default=0.0)),
                ("position", models.PositiveIntegerField(default=0)),
                ("labels", models.PositiveIntegerField(default=0)),
                ("stop_reason", models.CharField(blank=True, max_length=10)),
                ("spent", models.JSONField(blank=True, default=list)),
                ("outcome", models.JSONField(blank=True, default=dict)),
                ("message", models.TextField(blank=True)),
                ("student_progress", models.FloatField(blank=True, null=True)),
                ("forgotten_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "run",
                "ordering": ["-created_at"],
                "constraints": [
                    unique(
                        "one_run_of_a_study_spends_at_a_time",
                        "study",
                        condition=Q(rehearsal=False, status="asking"),
                    ),
                    check("only_a_rehearsal_has_a_seed", Q(seed__isnull=True) | Q(rehearsal=True)),
                    check(
                        "only_a_rehearsal_is_a_baseline",
                        ~Q(variant__in=("without_strictest", "group_after_group", "non_private")) | Q(rehearsal=True),
                    ),
                    unique(
                        "a_proposal_with_a_key_is_saved_once",
                        "created_by",
                        "proposal_key",
                        condition=~Q(proposal_key=""),
                    ),
                    check(
                        "run_is_approved_by_a_second_person",
                        Q(created_by=None) | Q(approved_by=None) | ~Q(approved_by=F("created_by")),
                    ),
                    check("labels_within_queries", Q(labels__lte=F("position"))),
                    check("run_uses_a_share", Q(share__gt=0, share__lte=1)),
                    check("run_sizes_are_positive", Q(batch_size__gt=0)),
                ],
            },
        ),
        migrations.CreateModel(
            "ProposalChange",
            [
                ID,
                *CHAINED,
                foreign("study", "consent.study", related_name="proposal_changes", db_index=False),
                foreign("run", "training.run", related_name="changes"),
                ("kind", models.CharField(max_length=10)),
                ("revision", models.PositiveIntegerField()),
                ("content", models.JSONField(blank=True, default=list)),
                actor("changed_by"),
                moment("changed_at"),
            ],
            options={
                "verbose_name": "change of a proposed run",
                "verbose_name_plural": "changes of proposed runs",
                "ordering": ["sequence"],
                "constraints": [unique("proposalchange_sequence_is_unique", "study", "sequence")],
            },
        ),
        migrations.CreateModel(
            "TeacherChunk",
            [
                ID,
                *PART,
                foreign("run", "training.run", CASCADE, related_name="chunks"),
                ("start", models.PositiveIntegerField()),
                ("stop", models.PositiveIntegerField()),
            ],
            options={
                "verbose_name": "chunk of teachers",
                "ordering": ["run", "start"],
                "constraints": [
                    unique("chunk_start_is_unique", "run", "start"),
                    check("chunk_is_not_empty", Q(stop__gt=F("start"))),
                ],
            },
        ),
        migrations.CreateModel(
            "Shard",
            [
                ID,
                *PART,
                foreign("run", "training.run", CASCADE, related_name="shards"),
                ("number", models.PositiveIntegerField()),
            ],
            options={
                "verbose_name": "shard of holders",
                "ordering": ["run", "number"],
                "constraints": [unique("shard_number_is_unique", "run", "number")],
            },
        ),
        migrations.CreateModel(
            "Round",
            [
                ID,
                foreign("run", "training.run", CASCADE, related_name="rounds"),
                ("index", models.PositiveIntegerField()),
                ("representation", models.JSONField()),
                ("artifact", models.CharField(max_length=200)),
                ("sigma", models.FloatField()),
                ("radius_share", models.FloatField(blank=True, null=True)),
                ("size", models.PositiveIntegerField()),
                ("position", models.PositiveIntegerField(default=0)),
                moment("opened_at"),
            ],
            options={
                "verbose_name": "round",
                "ordering": ["run", "index"],
                "constraints": [
                    unique("round_index_is_unique", "run", "index"),
                    check("round_position_within_size", Q(position__lte=F("size"))),
                ],
            },
        ),
        migrations.CreateModel(
            "Batch",
            [
                ID,
                foreign("run", "training.run", CASCADE, related_name="batches", db_index=False),
                ("index", models.PositiveIntegerField()),
                ("start", models.PositiveIntegerField()),
                ("size", models.PositiveIntegerField()),
                ("labels", models.PositiveIntegerField()),
                foreign("round", "training.round", CASCADE, related_name="batches", blank=True, null=True),
                ("asked", models.CharField(blank=True, max_length=200)),
                ("released", models.CharField(blank=True, max_length=200)),
                moment("recorded_at"),
            ],
            options={
                "verbose_name": "batch",
                "verbose_name_plural": "batches",
                "ordering": ["run", "index"],
                "constraints": [unique("batch_index_is_unique", "run", "index")],
            },
        ),
        migrations.CreateModel(
            "Query",
            [
                ID,
                foreign("run", "training.run", CASCADE, related_name="queries", db_index=False),
                foreign("batch", "training.batch", CASCADE, related_name="results"),
                ("row", models.PositiveIntegerField()),
                ("label", models.PositiveSmallIntegerField(null=True)),
                ("counts", models.JSONField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "query",
                "verbose_name_plural": "queries",
                "ordering": ["run", "row"],
                "constraints": [unique("a_point_is_put_to_the_vote_once", "run", "row")],
            },
        ),
        migrations.CreateModel(
            "StudentModel",
            [
                ID,
                foreign("run", "training.run", related_name="students"),
                ("version", models.PositiveIntegerField(default=1)),
                ("artifact", models.CharField(max_length=200)),
                ("learner", models.CharField(max_length=40)),
                ("seed", models.PositiveBigIntegerField(default=0)),
                ("digest", models.CharField(max_length=64)),
                ("onnx", models.CharField(blank=True, max_length=200)),
                ("onnx_digest", models.CharField(blank=True, max_length=64)),
                ("calibration", models.JSONField()),
                ("accuracy", models.FloatField(blank=True, null=True)),
                ("label_accuracy", models.FloatField(blank=True, null=True)),
                ("card", models.JSONField()),
                ("seconds", models.FloatField(blank=True, null=True)),
                ("score", models.FloatField(blank=True, null=True)),
                ("reference", models.JSONField(blank=True, null=True)),
                ("predictions", models.PositiveBigIntegerField(default=0)),
                foreign("asked_by", USER, SET_NULL, blank=True, null=True),
                moment("created_at"),
                ("stage", models.CharField(default="candidate", max_length=10)),
                ("publication_reason", models.CharField(blank=True, editable=False, max_length=500)),
                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                ("withdrawal_reason", models.CharField(blank=True, max_length=500)),
            ],
            options={
                "verbose_name": "student model",
                "ordering": ["-created_at"],
                "constraints": [unique("student_version_is_unique", "run", "version")],
            },
        ),
        migrations.CreateModel(
            "RunResult",
            [
                ("withdrawn_at", models.DateTimeField(blank=True, null=True)),
                ("withdrawal_reason", models.CharField(blank=True, max_length=500)),
                (
                    "run",
                    models.OneToOneField(
                        "training.run", PROTECT, primary_key=True, serialize=False, related_name="result"
                    ),
                ),
                ("content", models.JSONField()),
                ("digest", models.CharField(max_length=64)),
                ("card", models.JSONField()),
                moment("created_at"),
            ],
            options={
                "verbose_name": "result of a run",
                "verbose_name_plural": "results of runs",
                "ordering": ["-created_at"],
            },
        ),
        # The two refer to one another.
        migrations.AddField("Run", *foreign("student", "training.studentmodel", blank=True, null=True)),
        migrations.CreateModel(
            "StudentTraining",
            [
                ID,
                *PART,
                foreign("run", "training.run", CASCADE, related_name="trainings"),
                (
                    "version",
                    models.OneToOneField(
                        "training.studentmodel", CASCADE, related_name="assessment", blank=True, null=True
                    ),
                ),
                ("learner", models.CharField(max_length=40)),
                ("parameters", models.JSONField(blank=True, default=dict)),
                ("progress", models.FloatField(default=0.0)),
                ("message", models.TextField(blank=True)),
                foreign("asked_by", USER, SET_NULL, blank=True, null=True),
                moment("asked_at"),
            ],
            options={
                "verbose_name": "training of a student",
                "verbose_name_plural": "trainings of students",
                "ordering": ["run", "asked_at"],
                "constraints": [
                    unique(
                        "one_version_of_a_student_is_trained_at_a_time",
                        "run",
                        condition=Q(version__isnull=True) & ~Q(state="done"),
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "DatasetImport",
            [
                ("id", models.UUIDField(default=uuid.uuid4, primary_key=True, serialize=False)),
                foreign("study", "consent.study", CASCADE, related_name="imports"),
                ("name", models.CharField(max_length=100)),
                ("kind", models.CharField(max_length=10)),
                ("provenance", models.TextField(blank=True)),
                ("file", models.CharField(max_length=200)),
                ("label_file", models.CharField(blank=True, max_length=200)),
                ("holder_prefix", models.CharField(blank=True, max_length=100)),
                ("with_labels", models.BooleanField(default=False)),
                ("schema", models.JSONField(blank=True, default=dict)),
                ("remarks", models.JSONField(blank=True, default=list)),
                ("state", models.CharField(default="draft", max_length=10)),
                ("progress", models.FloatField(default=0.0)),
                ("rows", models.PositiveIntegerField(blank=True, null=True)),
                ("faults", models.PositiveIntegerField(blank=True, null=True)),
                ("message", models.JSONField(blank=True, default=str)),
                foreign("dataset", "training.dataset", SET_NULL, blank=True, null=True),
                ("claimed_by", models.CharField(blank=True, max_length=80)),
                ("heartbeat", models.DateTimeField(blank=True, null=True)),
                foreign("asked_by", USER, SET_NULL, blank=True, null=True),
                moment("touched_at"),
            ],
            options={
                "verbose_name": "import of a dataset",
                "verbose_name_plural": "imports of datasets",
                "ordering": ["-touched_at"],
            },
        ),
        migrations.CreateModel(
            "Verification",
            [
                ID,
                ("study", models.OneToOneField("consent.study", CASCADE, related_name="verification", null=True)),
                ("claimed_at", models.DateTimeField(null=True)),
                ("verified_at", models.DateTimeField(null=True)),
                ("faults", models.PositiveIntegerField(default=0)),
                ("found", models.JSONField(default=list)),
                ("fault_told", models.BooleanField(default=False)),
                ("locked", models.BooleanField(default=False)),
            ],
        ),
    ]
