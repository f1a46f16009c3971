"""Rounds of counts that rows are drawn from: of a run that publishes the rows, or that takes steps after them."""

from django.utils.translation import gettext as _

from common.sentences import Sentence, gettext_noop
from learning.formats import TabularSchema, schema_from_json
from learning.mechanisms.counts.columns import feature_columns
from learning.mechanisms.counts.question import CountsQuestion
from learning.mechanisms.synthesis.planner import MOST_COLUMNS, synthesis_plan_from_json
from learning.mechanisms.synthesis.rounds import Marginals
from training.methods.base import Wrong
from training.methods.counted import Cells, sums_of
from training.models import Round, Run

_SPACES = (
    Sentence(gettext_noop("Every column against the classes, by what the schema declares.")),
    Sentence(gettext_noop("Every pair of columns, in groups that follow from the round before.")),
    Sentence(gettext_noop("Columns along the strongest tree, in groups that follow from the rounds before.")),
)


class MarginalCells(Cells):
    """See :class:`training.engine.questions.Questions`."""

    #: A person is in as many cells as there are pairs of columns.
    shard = 20_000

    def round_open(self, run: Run) -> Round:
        index = run.rounds.count()
        question = marginals_of(run, index).question(index)
        space = _SPACES[index].to_json()
        return Round(run=run, index=index, representation=space, sigma=question.sigma, size=question.size)

    def question(self, opened_round: Round) -> CountsQuestion:
        return marginals_of(opened_round.run, opened_round.index).question(opened_round.index)


def rows_check(run: Run, wrong: Wrong, field: str) -> None:
    """Note at a field why no rows can be drawn of the private dataset of a proposal."""
    schema = schema_from_json(run.private_dataset.schema)
    if not isinstance(schema, TabularSchema):
        wrong(field, _("Rows are drawn of tables alone, and this dataset is none. Choose another."))
    elif not 2 <= (columns := len(feature_columns(schema, 1))) <= MOST_COLUMNS:
        numbers = {"most": MOST_COLUMNS, "columns": columns}
        text = _("Rows are drawn of 2 to %(most)d columns, and this dataset has %(columns)d. Ignore some of them.")
        wrong(field, text % numbers)


def marginals_of(run: Run, rounds: int) -> Marginals:
    """What the first ``rounds`` of a run have released, with its plan and the schema that its dataset has for good."""
    schema = schema_from_json(run.private_dataset.schema)
    assert isinstance(schema, TabularSchema), "the proposal was checked"
    batches = run.batches.filter(round__index__lt=rounds).order_by("index")
    return Marginals(
        schema,
        synthesis_plan_from_json(run.plan["rounds"]),
        tuple(budget["cap"] for budget in run.plan["budgets"]),
        tuple(sums_of(batch) for batch in batches),
    )
