"""Third person: what pages, receipts and mails say to somebody who answers for another person.

Guardians and proxies read “Anna Example's records” where everybody else reads “your records”. The texts are chosen
where texts are translated: by :func:`gettext` and :func:`gettext_lazy` of this module, and by the tags ``translate``
and ``blocktranslate`` of every template (:mod:`consent.templatetags.texts`), but not by ``_("…")`` within other
tags. So templates and services say everything once. A text that has no third person is about the reader, and stays as
it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.utils import translation
from django.utils.functional import lazy

from common.sentences import gettext_noop

#: Each text to a person about themselves, with the same about another person.
WORDS = {
    "I do not take part": gettext_noop("%(person)s does not take part"),
    "You have not decided yet. Until you do, your records are not used.": gettext_noop(
        "You have not decided yet. Until you do, %(person)s's records are not used."
    ),
    "You have not decided. Your records are not used.": gettext_noop(
        "You have not decided. %(person)s's records are not used."
    ),
    "You withdrew. Your records are not used any more.": gettext_noop(
        "The consent was withdrawn. %(person)s's records are not used any more."
    ),
    "You do not take part. Your records are not used.": gettext_noop(
        "%(person)s does not take part. The records are not used."
    ),
    "You take part: %(level)s.": gettext_noop("%(person)s takes part: %(level)s."),
    "Your consent counts up to %(date)s, and with that day.": gettext_noop(
        "The consent for %(person)s counts up to %(date)s, and with that day."
    ),
    "Your records are not used now: it is on record that you cannot decide at present.": gettext_noop(
        "%(person)s's records are not used now: it is on record that %(person)s cannot decide at present."
    ),
    "Your records are not used now. Your consent (%(level)s) ended with %(date)s.": gettext_noop(
        "%(person)s's records are not used now. The consent (%(level)s) ended with %(date)s."
    ),
    "Your records are not used now. The consent was given when somebody else decided.": gettext_noop(
        "%(person)s's records are not used now. The consent was given when somebody else decided."
    ),
    "Your records are not used now. You agreed (%(level)s), but there is new information since.": gettext_noop(
        "%(person)s's records are not used now. The consent (%(level)s) was given before there was new information."
    ),
    "Nothing was erased, because you take part. If you want your records erased, withdraw first.": gettext_noop(
        "Nothing was erased, because %(person)s takes part. If you want the records erased, withdraw first."
    ),
    "Your records are being erased.": gettext_noop("%(person)s's records are being erased."),
    "Choose one of the three levels, or that you do not take part.": gettext_noop(
        "Choose one of the three levels, or that %(person)s does not take part."
    ),
    (
        "Someone who guesses whether you took part (whether your records were used) would be right at most "
        "%(right)d times in 100 instead of 50."
    ): gettext_noop(
        "Someone who guesses whether %(person)s took part (whether %(person)s's records were used) would be "
        "right at most %(right)d times in 100 instead of 50."
    ),
    (
        "Someone who guesses whether you took part (whether your records were used) could be right nearly always."
    ): gettext_noop(
        "Someone who guesses whether %(person)s took part (whether %(person)s's records were used) could be "
        "right nearly always."
    ),
    (
        "On %(when)s you allowed %(controller)s to learn from your records for the study “%(study)s”, with "
        "this protection: %(level)s."
    ): gettext_noop(
        "On %(when)s %(controller)s was allowed to learn from %(person)s's records for the study “%(study)s”,"
        " with this protection: %(level)s."
    ),
    "On %(when)s you withdrew your consent to the study “%(study)s” of %(controller)s.": gettext_noop(
        "On %(when)s the consent for %(person)s to the study “%(study)s” of %(controller)s was withdrawn."
    ),
    "On %(when)s you decided not to take part in the study “%(study)s” of %(controller)s.": gettext_noop(
        "On %(when)s it was decided that %(person)s does not take part in the study “%(study)s” of %(controller)s."
    ),
    "Receipt of your decision": gettext_noop("Receipt of the decision about %(person)s's records"),
    "Yes. It holds your records and prepares them for learning, so it sees them.": gettext_noop(
        "Yes. It holds %(person)s's records and prepares them for learning, so it sees them."
    ),
    "The most is learned from my records.": gettext_noop("The most is learned from %(person)s's records."),
    "No. It is not about who gets to see records. It is about guessing whether you took part at all.": gettext_noop(
        "No. It is not about who gets to see records. It is about guessing whether %(person)s took part at all."
    ),
    "How often a guess about whether I took part can be right.": gettext_noop(
        "How often a guess about whether %(person)s took part can be right."
    ),
    "Who sees my records?": gettext_noop("Who sees %(person)s's records?"),
    "Everything that was ever learned from my records is undone.": gettext_noop(
        "Everything that was ever learned from %(person)s's records is undone."
    ),
    "My records are used for nothing new.": gettext_noop("%(person)s's records are used for nothing new."),
    "%(controller)s asks whether it may learn from your records. You decide.": gettext_noop(
        "%(controller)s asks whether it may learn from %(person)s's records. You decide for %(person)s."
    ),
    "Who sees your records": gettext_noop("Who sees %(person)s's records"),
    "Your decision": gettext_noop("Your decision for %(person)s"),
    "If you do not answer, your records are used for nothing new after that.": gettext_noop(
        "If you do not answer, %(person)s's records are used for nothing new after that."
    ),
    (
        "Someone who guesses whether you took part (whether your records were used) could be right "
        "<strong>nearly always</strong> instead of 50 times in 100."
    ): gettext_noop(
        "Someone who guesses whether %(person)s took part (whether %(person)s's records were used) could be "
        "right <strong>nearly always</strong> instead of 50 times in 100."
    ),
    (
        "Someone who guesses whether you took part (whether your records were used) would be right at most "
        "<strong>%(right)s times in 100</strong> instead of 50."
    ): gettext_noop(
        "Someone who guesses whether %(person)s took part (whether %(person)s's records were used) would be "
        "right at most <strong>%(right)s times in 100</strong> instead of 50."
    ),
    (
        "Your records are not used. Someone who guesses whether you took part would be right <strong>50 times"
        " in 100</strong>, as with a coin."
    ): gettext_noop(
        "%(person)s's records are not used. Someone who guesses whether %(person)s took part would be right "
        "<strong>50 times in 100</strong>, as with a coin."
    ),
    "what other people's records tell about you, for example those of your family.": gettext_noop(
        "what other people's records tell about %(person)s, for example those of the family."
    ),
    (
        "several pseudonyms. If this study knows you under more than one, the limit holds for each of them, "
        "not for all of them together."
    ): gettext_noop(
        "several pseudonyms. If this study knows %(person)s under more than one, the limit holds for each of "
        "them, not for all of them together."
    ),
    "other studies. If you take part in several, what is released for each of them adds up.": gettext_noop(
        "other studies. If %(person)s takes part in several, what is released for each of them adds up."
    ),
    "This study is still being prepared: there is nothing to decide yet, and your records are not used.": gettext_noop(
        "This study is still being prepared: there is nothing to decide yet, and %(person)s's records are not used."
    ),
    "You need not take part. Nothing depends on it.": gettext_noop(
        "%(person)s need not take part. Nothing depends on it."
    ),
    "You can see what is stored about you here, and take a copy with you.": gettext_noop(
        "You can see what is stored about %(person)s here, and take a copy with you."
    ),
    "No decision about you is made by a program here.": gettext_noop(
        "No decision about %(person)s is made by a program here."
    ),
    "If you die, your consent ends.": gettext_noop("If %(person)s dies, the consent ends."),
    "If you die, your consent stands.": gettext_noop("If %(person)s dies, the consent stands."),
    "If one day you can no longer decide, it ends, and whoever may decide for you is asked.": gettext_noop(
        "If somebody else decides for %(person)s one day, they are asked anew."
    ),
    "If one day you can no longer decide, it stands. Whoever may decide for you can withdraw it.": gettext_noop(
        "Whoever may decide for %(person)s one day can withdraw it."
    ),
    "My choice": gettext_noop("Choice for %(person)s"),
    "My decisions so far": gettext_noop("Decisions about %(person)s's records so far"),
    "See my choice": gettext_noop("See the choice for %(person)s"),
    "Your stored records": gettext_noop("%(person)s's stored records"),
    "See what your records have been used for so far": gettext_noop(
        "See what %(person)s's records have been used for so far"
    ),
    "Everything that is stored about you here": gettext_noop("Everything that is stored about %(person)s here"),
    (
        "You have a right to this copy (GDPR, Articles 15 and 20). It holds your records, your decisions, "
        "what your records were used for, scans of letters you signed, when your invitations were opened, and"
        " who looked up your choice, when and why."
    ): gettext_noop(
        "%(person)s has a right to this copy (GDPR, Articles 15 and 20), for which you can ask. It holds the "
        "records, all decisions, what the records were used for, scans of signed letters, when invitations "
        "were opened, and who looked up the choice, when and why."
    ),
    "New links that were made for you": gettext_noop("New links that were made"),
    (
        "With each of them its bearer could decide for you from then on. If you did not ask for one, write to"
        " the study."
    ): gettext_noop(
        "With each of them its bearer could decide for %(person)s from then on. If you did not ask for one, "
        "write to the study."
    ),
    (
        "The link of your invitation brings you back here, today or in a year. Whoever has it can decide for "
        "you: keep it private, and press “Leave” above on a device that others use."
    ): gettext_noop(
        "The link of your invitation brings you back here, today or in a year. Whoever has it can decide for "
        "%(person)s: keep it private, and press “Leave” above on a device that others use."
    ),
    "Erase my records": gettext_noop("Erase %(person)s's records"),
    "Erase your stored records?": gettext_noop("Erase %(person)s's stored records?"),
    "Yes, erase my records": gettext_noop("Yes, erase %(person)s's records"),
    "What %(controller)s holds about you for other purposes is not part of this.": gettext_noop(
        "What %(controller)s holds about %(person)s for other purposes is not part of this."
    ),
    (
        "Erased are your records, scans of letters that you signed, and what was worked out from your records"
        " alone. This cannot be undone."
    ): gettext_noop(
        "Erased are %(person)s's records, scans of signed letters, and what was worked out from these records"
        " alone. This cannot be undone."
    ),
    (
        "What you decided and when stays on record. So does how much of your limit is used. Both stand under "
        "a code from which nobody can read your name."
    ): gettext_noop(
        "What was decided and when stays on record. So does how much of the limit is used. Both stand under a"
        " code from which nobody can read %(person)s's name."
    ),
    "If you take part again later, the study has to enter your records again.": gettext_noop(
        "If %(person)s takes part again later, the study has to enter the records again."
    ),
    (
        "What was released before stays released: it cannot be called back. The limit that you chose still holds for "
        "it."
    ): gettext_noop(
        "What was released before stays released: it cannot be called back. The limit that was chosen for %(person)s "
        "still holds for it."
    ),
    "No. What was released before stays released. The limit that you chose still holds for it.": gettext_noop(
        "No. What was released before stays released. The limit that was chosen for %(person)s still holds for it."
    ),
    "The limit that you chose still holds for all that was ever released.": gettext_noop(
        "The limit that was chosen still holds for all that was ever released."
    ),
    "Your stored records are then erased here, within a day.": gettext_noop(
        "%(person)s's stored records are then erased here, within a day."
    ),
    (
        "On %(date)s it was recorded that your stored records are to be erased. This is done within a day. Come back "
        "to this page to see it."
    ): gettext_noop(
        "On %(date)s it was recorded that %(person)s's stored records are to be erased. This is done within a day. "
        "Come back to this page to see it."
    ),
    "Your stored records were erased on %(date)s.": gettext_noop(
        "%(person)s's stored records were erased on %(date)s."
    ),
    "Your records are stored and not used.": gettext_noop("%(person)s's records are stored and not used."),
    "What should happen to your stored records?": gettext_noop("What should happen to %(person)s's stored records?"),
    (
        "From now on, your records are used in no new learning. Learning that is under way goes on without them."
    ): gettext_noop(
        "From now on, %(person)s's records are used in no new learning. Learning that is under way goes on "
        "without them."
    ),
    (
        "From that moment, your records are used in no new learning. Learning that is under way goes on without them."
    ): gettext_noop(
        "From that moment, %(person)s's records are used in no new learning. Learning that is under way goes "
        "on without them."
    ),
    "There is no disadvantage, and you can take part again later if you like.": gettext_noop(
        "There is no disadvantage, and %(person)s can take part again later."
    ),
    "There is no disadvantage. The study is closed: you cannot take part again.": gettext_noop(
        "There is no disadvantage. The study is closed: %(person)s cannot take part again."
    ),
    "Yes, withdraw my consent": gettext_noop("Yes, withdraw the consent for %(person)s"),
    "What my records were used for": gettext_noop("What %(person)s's records were used for"),
    "Your protection so far": gettext_noop("%(person)s's protection so far"),
    (
        "How much of your limit was really used follows from your records. Whoever makes you show it would "
        "learn something about them. So nobody is shown it, and the number above is the most that it can be."
    ): gettext_noop(
        "How much of %(person)s's limit was really used follows from the records. Whoever makes you show it "
        "would learn something about them. So nobody is shown it, and the number above is the most that it "
        "can be."
    ),
    "Learning that your records were part of": gettext_noop("Learning that %(person)s's records were part of"),
    "Nothing so far: nothing that was released has learned from your records.": gettext_noop(
        "Nothing so far: nothing that was released has learned from %(person)s's records."
    ),
    (
        "What else was released, for example how many people take part, can tell a little about whether you did."
    ): gettext_noop(
        "What else was released, for example how many people take part, can tell a little about whether %(person)s did."
    ),
    "Your decision on “%(title)s” is recorded": gettext_noop("The decision for %(person)s on “%(title)s” is recorded"),
    "It asks everybody again. Until you have read it and decided anew, your records are not used.": gettext_noop(
        "It asks everybody again. Until you have read it and decided anew, %(person)s's records are not used."
    ),
    (
        "The people who run the study have made a new link for you, with which its bearer can decide for you."
        " Earlier links open nothing any more; your account still works."
    ): gettext_noop(
        "The people who run the study have made a new link for you, with which its bearer can decide for "
        "%(person)s. Earlier links open nothing any more; your account still works."
    ),
    "What your records have been used for, and how you decide otherwise:": gettext_noop(
        "What %(person)s's records have been used for, and how you decide otherwise:"
    ),
    (
        "The ethics committee has changed what the levels mean, from %(date)s on. What you were promised "
        "never gets weaker by this. If a level now protects more, that counts at once. If it protects less, "
        "that counts only when you decide anew."
    ): gettext_noop(
        "The ethics committee has changed what the levels mean, from %(date)s on. What %(person)s was "
        "promised never gets weaker by this. If a level now protects more, that counts at once. If it "
        "protects less, that counts only when you decide anew."
    ),
    (
        "The protection is differential privacy. Compared are everything that this study ever releases with "
        "you and all of your records, and the same without you. Each ε is stated at δ = %(delta)s and stands "
        "for the μ of Gaussian differential privacy with δ = Φ(−ε/μ + μ/2) − e<sup>ε</sup> · Φ(−ε/μ − μ/2), "
        "where Φ is the distribution function of the standard normal distribution. Runs over samples of the "
        "people may take up to a hundredth of δ; μ is made smaller for it. An ethics committee set the values"
        " of ε; a second person approved them."
    ): gettext_noop(
        "The protection is differential privacy. Compared are everything that this study ever releases with "
        "%(person)s and all of %(person)s's records, and the same without. Each ε is stated at δ = %(delta)s "
        "and stands for the μ of Gaussian differential privacy with δ = Φ(−ε/μ + μ/2) − e<sup>ε</sup> · "
        "Φ(−ε/μ − μ/2), where Φ is the distribution function of the standard normal distribution. Runs over "
        "samples of the people may take up to a hundredth of δ; μ is made smaller for it. An ethics committee"
        " set the values of ε; a second person approved them."
    ),
    ("Did you take part? Right with a probability of at most Φ(μ/2). These are the numbers above."): gettext_noop(
        "Did %(person)s take part? Right with a probability of at most Φ(μ/2). These are the numbers above."
    ),
    (
        "Which of two possible records is yours? Whoever knows that you take part is right with a probability"
        " of at most Φ(μ)."
    ): gettext_noop(
        "Which of two possible records is %(person)s's? Whoever knows that %(person)s takes part is right "
        "with a probability of at most Φ(μ)."
    ),
    "At any time, on the page “My choice”, without a reason and without any disadvantage.": gettext_noop(
        "At any time, on the page “Choice for %(person)s”, without a reason and without any disadvantage."
    ),
    (
        "Your stored records are then erased here, within a day. Only if you say that they stay, they stay "
        "stored and are not used."
    ): gettext_noop(
        "%(person)s's stored records are then erased here, within a day. Only if you say that they stay, they"
        " stay stored and are not used."
    ),
    ("You said on %(date)s that your records stay stored. They are not used."): gettext_noop(
        "You said on %(date)s that %(person)s's records stay stored. They are not used."
    ),
    ("<strong>Took part?</strong> Were your records used or not?"): gettext_noop(
        "<strong>Took part?</strong> Were %(person)s's records used or not?"
    ),
    (
        "<strong>Which records?</strong> They know that you take part. Which of two possible sets of records is yours?"
    ): gettext_noop(
        "<strong>Which records?</strong> They know that %(person)s takes part. Which of two possible sets of "
        "records is the right one?"
    ),
    ("Your records are not used."): gettext_noop("%(person)s's records are not used."),
    ("What is true of people like you can be found out whether or not you take part."): gettext_noop(
        "What is true of people like %(person)s can be found out whether or not %(person)s takes part."
    ),
    (
        "Lower protection lets the study learn more: up to %(average)s times (average) or "
        "%(low)s times (low) as much from your records as at high protection."
    ): gettext_noop(
        "Lower protection lets the study learn more: up to %(average)s times (average) or "
        "%(low)s times (low) as much from %(person)s's records as at high protection."
    ),
    (
        "Someone who knows that you take part, and guesses which of two possible sets of records is yours, "
        "could be right <strong>nearly always</strong> instead of 50 times in 100."
    ): gettext_noop(
        "Someone who knows that %(person)s takes part, and guesses which of two possible sets of records is "
        "the right one, could be right <strong>nearly always</strong> instead of 50 times in 100."
    ),
    (
        "Someone who knows that you take part, and guesses which of two possible sets of records is yours, "
        "would be right at most <strong>%(right)s times in 100</strong> instead of 50."
    ): gettext_noop(
        "Someone who knows that %(person)s takes part, and guesses which of two possible sets of records is "
        "the right one, would be right at most <strong>%(right)s times in 100</strong> instead of 50."
    ),
    (
        "what is true of people like you. That can be found out from the records of others, whether or not "
        "you take part."
    ): gettext_noop(
        "what is true of people like %(person)s. That can be found out from the records of others, whether or"
        " not %(person)s takes part."
    ),
    (
        "With all that has been released, someone who guesses whether you took part (whether your records "
        "were used) could be right <strong>nearly always</strong>, even where both are equally likely "
        "beforehand."
    ): gettext_noop(
        "With all that has been released, someone who guesses whether %(person)s took part (whether "
        "%(person)s's records were used) could be right <strong>nearly always</strong>, even where both are "
        "equally likely beforehand."
    ),
    (
        "With all that has been released, someone who guesses whether you took part (whether your records "
        "were used) would be right at most <strong>%(so_far)s times in 100</strong> instead of 50, where both"
        " are equally likely beforehand."
    ): gettext_noop(
        "With all that has been released, someone who guesses whether %(person)s took part (whether "
        "%(person)s's records were used) would be right at most <strong>%(so_far)s times in 100</strong> "
        "instead of 50, where both are equally likely beforehand."
    ),
    (
        "Someone who knows that you take part, and guesses which of two possible sets of records is yours, "
        "could be right <strong>nearly always</strong>."
    ): gettext_noop(
        "Someone who knows that %(person)s takes part, and guesses which of two possible sets of records is "
        "the right one, could be right <strong>nearly always</strong>."
    ),
    (
        "Someone who knows that you take part, and guesses which of two possible sets of records is yours, "
        "would be right at most <strong>%(so_far_records)s times in 100</strong>."
    ): gettext_noop(
        "Someone who knows that %(person)s takes part, and guesses which of two possible sets of records is "
        "the right one, would be right at most <strong>%(so_far_records)s times in 100</strong>."
    ),
    (
        "Others may know that you take part and guess which of two sets of records is yours. They would be "
        "right at most %(right)d times in 100 instead of 50."
    ): gettext_noop(
        "Others may know that %(person)s takes part and guess which of two sets of records is the right one. "
        "They would be right at most %(right)d times in 100 instead of 50."
    ),
    (
        "Others may know that you take part and guess which of two sets of records is yours. They could be "
        "right nearly always."
    ): gettext_noop(
        "Others may know that %(person)s takes part and guess which of two sets of records is the right one. "
        "They could be right nearly always."
    ),
    (
        "What is true of people like you, which can be found out whether or not you take part; when and how "
        "much data is sent over a network; what the records of others, such as relatives, tell about you; "
        "other studies. If you are in this study under several pseudonyms, each counts by itself."
    ): gettext_noop(
        "What is true of people like %(person)s, which can be found out whether or not %(person)s takes part;"
        " when and how much data is sent over a network; what the records of others, such as relatives, tell "
        "about %(person)s; other studies. If %(person)s is in this study under several pseudonyms, each "
        "counts by itself."
    ),
    ("Guesses about me are right least often."): gettext_noop("Guesses about %(person)s are right least often."),
    ("No, it is the other way round. With high protection guesses about you are right least often."): gettext_noop(
        "No, it is the other way round. With high protection guesses about %(person)s are right least often."
    ),
    ("No records of yours are stored here."): gettext_noop("No records of %(person)s are stored here."),
    (
        "If you agreed before and do not take part any more: your stored records are erased, unless you mark this box."
    ): gettext_noop(
        "If you agreed before and %(person)s does not take part any more: %(person)s's stored records are erased, "
        "unless you mark this box."
    ),
    ("Until you answer, your records are not used."): gettext_noop(
        "Until you answer, %(person)s's records are not used."
    ),
    ("After it, someone who guesses whether you took part could be right nearly always."): gettext_noop(
        "After it, someone who guesses whether %(person)s took part could be right nearly always."
    ),
    (
        "Too little to change the number: someone who guesses whether you took part is right at most "
        "%(after)s times in 100, before it and after it."
    ): gettext_noop(
        "Too little to change the number: someone who guesses whether %(person)s took part is right at "
        "most %(after)s times in 100, before it and after it."
    ),
    (
        "Someone who guesses whether you took part was right at most %(before)s times in 100 before it, "
        "and is right at most <strong>%(after)s times in 100</strong> after it."
    ): gettext_noop(
        "Someone who guesses whether %(person)s took part was right at most %(before)s times in 100 "
        "before it, and is right at most <strong>%(after)s times in 100</strong> after it."
    ),
    ("Nothing: it has not learned from your records."): gettext_noop(
        "Nothing: it has not learned from %(person)s's records."
    ),
    ("What it cost your protection"): gettext_noop("What it cost %(person)s's protection"),
    (
        "With all that has been released, someone who guesses whether you took part could be right nearly always."
    ): gettext_noop(
        "With all that has been released, someone who guesses whether %(person)s took part could be right "
        "nearly always."
    ),
    (
        "With all that has been released, someone who guesses whether you took part would be right at "
        "most %(so_far)s times in 100 instead of 50, where both are equally likely beforehand."
    ): gettext_noop(
        "With all that has been released, someone who guesses whether %(person)s took part would be right "
        "at most %(so_far)s times in 100 instead of 50, where both are equally likely beforehand."
    ),
    (
        "Each number is the most that it can be. How much was really used is shown to nobody, because it "
        "would tell something about your records."
    ): gettext_noop(
        "Each number is the most that it can be. How much was really used is shown to nobody, because it "
        "would tell something about %(person)s's records."
    ),
    ("This is a rehearsal on data that are nobody's secret. Nothing is learned from your records."): gettext_noop(
        "This is a rehearsal on data that are nobody's secret. Nothing is learned from %(person)s's records."
    ),
    ("See what was learned, and what it cost your protection"): gettext_noop(
        "See what was learned, and what it cost %(person)s's protection"
    ),
    (
        "If you took part, the page says what it cost your protection, which nobody else is told. There "
        "you can change your decision or leave:"
    ): gettext_noop(
        "If %(person)s took part, the page says what it cost %(person)s's protection, which nobody else "
        "is told. There you can change the decision or leave:"
    ),
    "Your protection: before and now": gettext_noop("The protection: before and now"),
    "Did you take part?": gettext_noop("Did the person take part?"),
    "Which of two records is yours?": gettext_noop("Which of two records is the person's?"),
    "Before: when you decided (%(day)s)": gettext_noop("Before: at the last consent (%(day)s)"),
    "Your promise today": gettext_noop("The promise today"),
    "Before: your promise": gettext_noop("Before: the promise"),
    "You can keep what you were promised. It becomes weaker only if you say yes to exactly that.": gettext_noop(
        "What was promised can be kept. It becomes weaker only if you say yes to exactly that."
    ),
    "Your protection is stronger than when you decided: a guess is right %(promise)s, before %(before)s.": gettext_noop(
        "The protection is stronger than at the last consent: a guess is right %(promise)s, before %(before)s."
    ),
    "You were promised that a guess is right %(promise)s.": gettext_noop(
        "It was promised that a guess is right %(promise)s."
    ),
    "This level now means %(now)s. You can keep your promise.": gettext_noop(
        "This level now means %(now)s. The promise can be kept."
    ),
    "I keep what I was promised: high protection": gettext_noop("What was promised is kept: high protection"),
    "I keep what I was promised: average protection": gettext_noop("What was promised is kept: average protection"),
    "I keep what I was promised: low protection": gettext_noop("What was promised is kept: low protection"),
    "Weaker than what you were promised": gettext_noop("Weaker than what was promised"),
    (
        "Yes, I accept weaker protection: a guess whether I took part can be right <strong>nearly "
        "always</strong>, before at most %(before)s times in 100."
    ): gettext_noop(
        "Yes, I accept weaker protection for %(person)s: a guess whether %(person)s took part can be right "
        "<strong>nearly always</strong>, before at most %(before)s times in 100."
    ),
    (
        "Yes, I accept weaker protection: a guess whether I took part can be right <strong>%(now)s times in "
        "100</strong>, before at most %(before)s times."
    ): gettext_noop(
        "Yes, I accept weaker protection for %(person)s: a guess whether %(person)s took part can be right "
        "<strong>%(now)s times in 100</strong>, before at most %(before)s times."
    ),
    (
        "A guess which of two possible sets of records is mine can be right <strong>nearly always</strong>, "
        "before at most %(before)s times in 100."
    ): gettext_noop(
        "A guess which of two possible sets of records is the right one can be right <strong>nearly "
        "always</strong>, before at most %(before)s times in 100."
    ),
    (
        "A guess which of two possible sets of records is mine can be right <strong>%(now)s times in "
        "100</strong>, before at most %(before)s times."
    ): gettext_noop(
        "A guess which of two possible sets of records is the right one can be right <strong>%(now)s times in "
        "100</strong>, before at most %(before)s times."
    ),
    "This is weaker protection than you were promised. It counts only with your separate yes to that.": gettext_noop(
        "This is weaker protection than was promised. It counts only with your separate yes to that."
    ),
    "What you were promised has changed since you opened the form. Please read it again.": gettext_noop(
        "What was promised has changed since you opened the form. Please read it again."
    ),
    (
        "If you agreed before: you keep what you were promised, whatever you mark above, unless you mark this box, too."
    ): gettext_noop(
        "If there was a consent before: what was promised is kept, whatever you mark above, unless you mark this "
        "box, too."
    ),
    "Yes, I accept weaker protection than I was promised.": gettext_noop(
        "Yes, I accept weaker protection than was promised."
    ),
    "What has changed since you agreed": gettext_noop("What has changed since the last consent"),
    "You agreed to version %(agreed)s. Version %(now)s differs in these lines:": gettext_noop(
        "The last consent was to version %(agreed)s. Version %(now)s differs in these lines:"
    ),
    "The receipt says what you were promised before, and what you are promised now.": gettext_noop(
        "The receipt says what was promised before, and what is promised now."
    ),
    (
        "%(level)s: whether you took part, right %(before)s; which records are yours, right %(records_before)s"
    ): gettext_noop(
        "%(level)s: whether %(person)s took part, right %(before)s; which records are the right ones, right "
        "%(records_before)s"
    ),
    (
        "accepted with a separate yes: a guess whether you took part is right %(now)s, before %(before)s; which "
        "records are yours, right %(records_now)s, before %(records_before)s"
    ): gettext_noop(
        "accepted with a separate yes: a guess whether %(person)s took part is right %(now)s, before %(before)s; "
        "which records are the right ones, right %(records_now)s, before %(records_before)s"
    ),
    (
        "kept: whether you took part, right %(now)s; which records are yours, right %(records_now)s, as before"
    ): gettext_noop(
        "kept: whether %(person)s took part, right %(now)s; which records are the right ones, right "
        "%(records_now)s, as before"
    ),
}

_NAME = "%(person)s"
_NAMELESS = gettext_noop("this person")
#: What would be read as a mark in a page, or as a value to fill in.
_MARKS = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "%%"})


#: Who is spoken about; None where the reader is spoken to.
_spoken_about: ContextVar[str | None] = ContextVar("spoken about", default=None)


@contextmanager
def in_third_person(person: str) -> Iterator[None]:
    """Let the texts within speak about ``person``.

    Empty: somebody whose pseudonym was erased, who is called so that every text can have it.
    """
    token = _spoken_about.set(person)
    try:
        yield
    finally:
        _spoken_about.reset(token)


def third_person(message: str) -> str | None:
    """Return a text about the person, in the active language; None where there is none, or the reader is spoken to."""
    person, words = _spoken_about.get(), WORDS.get(message)
    if person is None or words is None:
        return None
    said = translation.gettext(words)
    name = person.translate(_MARKS) or translation.gettext(_NAMELESS)
    if said.startswith(_NAME):
        said = (name if person else name[:1].upper() + name[1:]) + said.removeprefix(_NAME)
    return said.replace(_NAME, name)


def gettext(message: str) -> str:
    """Return the translation of a text, in the third person where there is one."""
    third = third_person(message)
    return translation.gettext(message) if third is None else third


gettext_lazy = lazy(gettext, str)
