"""The chat pane: a conversation with the model, streamed, with what each answer cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Input

from k3ctl.cli.answer_text import stats_line
from k3ctl.client.answer_stream import AnswerStream, Heard
from k3ctl.client.conversation import Answer
from k3ctl.tui.figures import amount, counted
from k3ctl.tui.ink import Line, Span, line, quiet, spread, wrap
from k3ctl.tui.lane_sums import lane_sums
from k3ctl.tui.pane import Chosen, Pane
from k3ctl.tui.snapshot import Snapshot
from k3ctl.tui.transcript import Turn
from k3ctl.tui.widgets.drawing import Drawing
from k3ctl.tui.widgets.scroll import Scroll
from k3ctl.tui.widgets.typed_line import TypedLine
from k3d.errors import K3Error
from k3d.store.frame import Frame

NO_HOME = "these frames have no home, so there is no pod to ask"


class Streamed(Message):
    """More of an answer; a later one stands for those before it."""

    def __init__(self, stream: AnswerStream, heard: Heard) -> None:
        super().__init__()
        self.stream = stream
        self.heard = heard

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, Streamed) and message.stream is self.stream


class Question(TypedLine):
    """The line that is typed into. Esc stops an answer, or leaves the line."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "submit", "ask"),
        Binding("escape", "leave", "stop, or leave the line", key_display="esc"),
        Binding("ctrl+n", "afresh", "new conversation", key_display="^n"),
        Binding("up", "earlier(-1)", "question before", show=False),
        Binding("down", "earlier(1)", "question after", show=False),
        Binding("pageup", "scroll(-1)", "page up", show=False),
        Binding("pagedown", "scroll(1)", "page down", show=False),
    ]

    @property
    def _chat(self) -> ChatPane:
        return next(node for node in self.ancestors if isinstance(node, ChatPane))

    def _on_paste(self, event: events.Paste) -> None:
        """Several lines become one; Textual's own would drop all but the first."""
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor(" ".join(event.text.splitlines()))

    def action_leave(self) -> None:
        if not self._chat.stop():
            self._chat.query_one(Scroll).focus()

    def action_afresh(self) -> None:
        self._chat.action_afresh()

    def action_earlier(self, by: int) -> None:
        text = self._chat.earlier(by)
        if text is not None:
            self.value = text
            self.cursor_position = len(text)

    def action_scroll(self, by: int) -> None:
        scroll = self._chat.query_one(Scroll)
        scroll.scroll_relative(y=by * max(1, scroll.size.height - 1), animate=False)


class ChatPane(Pane):
    """Questions at the foot, the conversation above."""

    DEFAULT_CSS = """
    ChatPane #chat-lines { min-height: 1; }
    ChatPane Question {
        height: 1; border: none; padding: 0 1; background: $panel;
        &:focus { border: none; background-tint: $foreground 0%; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("i,enter", "type", "ask"),
        Binding("x", "stop", "stop"),
        Binding("n", "afresh", "new"),
    ]
    HELP: ClassVar[str] = (
        "Enter asks; the answer streams, and the line below it says how it was decoded: tokens a "
        "second, the prompt and how much of it was reused, the acceptance length (all measured). "
        "Esc stops an answer, which stays in the conversation as far as it came; Esc again leaves "
        "the line, so that the keys of the console work; i comes back to it. ^n begins afresh, up "
        "and down bring questions back.\n\n"
        "Tokens a second here are of one answer, from its first token to its last; in Lanes they "
        "are of the last interval. Tokens written and the acceptance length count the same there."
    )

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._turns: list[Turn] = []
        self._stream: AnswerStream | None = None
        self._heard: Heard | None = None
        self._asked = 0
        self._back = 0

    def compose(self) -> ComposeResult:
        with Scroll(id="chat-scroll"):
            yield Drawing(self._draw, fit=True, id="chat-lines")
        yield Drawing(self._draw_state, fit=True, id="chat-state")
        yield Question(placeholder="ask the model", id="chat-question", select_on_focus=False)

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        question = self.query_one(Question)
        if question.display and self.unasked is not None:
            question.display = False  # its keys are the console's then
            self.query_one("#chat-lines", Drawing).redraw()
        self.query_one("#chat-state", Drawing).redraw()

    @property
    def unasked(self) -> str | None:
        """Why the model cannot be asked; None where it can."""
        return self.console.not_live or (NO_HOME if self.console.home is None else None)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return self.unasked is None or action not in ("type", "stop", "afresh")

    def _draw(self, width: int, _: int) -> Sequence[Line]:
        marks = self.console.marks
        if self.unasked is not None:
            return wrap(self.unasked, width, "warn")
        return [each for turn in self._turns for each in turn.lines(width, marks)]

    def _draw_state(self, width: int, _: int) -> Sequence[Line]:
        frame, heard = self.shown.frame, self._heard
        right = line(quiet("" if frame is None else _lanes(frame)))
        if self._stream is None:
            fresh = not self._turns and self.unasked is None
            left = line(quiet("nothing was asked yet" if fresh else ""))
        elif heard is None:
            left = line(Span("waiting for the first token", "accent"))
        else:
            left = line(
                Span("answering  ", "accent"), counted(heard.tokens, "token"),
                f"  {amount(heard.tokens_per_s)} tokens/s",
                quiet(" (measured); esc stops" if width >= 72 else ""),
            )  # fmt: skip
        return [spread(left, right, width, self.console.marks.more)]

    def _redraw(self) -> None:
        scroll = self.query_one(Scroll)
        at_end = scroll.scroll_offset.y >= scroll.max_scroll_y - 1
        self.query_one("#chat-lines", Drawing).redraw()
        self.query_one("#chat-state", Drawing).redraw()
        if at_end:
            self.call_after_refresh(scroll.scroll_end, animate=False)

    # Asking

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        question, home = event.value.strip(), self.console.home
        if not question or home is None or self._stream is not None:
            return
        event.input.value = ""
        messages = [message for turn in self._turns for message in _messages(turn)]
        messages.append({"role": "user", "content": question})
        turn = Turn(question)
        self._turns.append(turn)
        self._asked += 1
        self._back, self._heard = 0, None

        def tell(heard: Heard) -> None:
            self.post_message(Streamed(stream, heard))

        stream = self._stream = AnswerStream(home, {"messages": messages}, tell)
        self.console.ask(
            f"answer {self._asked}",
            stream.run,
            lambda answer: self._ended(stream, turn, answer),
            lambda error: self._failed(stream, turn, error),
        )
        self._redraw()

    def on_streamed(self, message: Streamed) -> None:
        if message.stream is not self._stream:
            return  # of an answer that was stopped
        turn, self._heard = self._turns[-1], message.heard
        turn.reasoning, turn.text = message.heard.reasoning, message.heard.text
        self._redraw()

    def _ended(self, stream: AnswerStream, turn: Turn, answer: Answer) -> None:
        if stream is not self._stream:
            return
        turn.reasoning, turn.text, turn.ended = answer.reasoning, answer.text, True
        turn.note = stats_line(answer)
        if answer.finish_reason == "length":
            turn.note += "; cut at its longest"
        self._stream = None
        self._redraw()

    def _failed(self, stream: AnswerStream, turn: Turn, error: K3Error) -> None:
        if stream is not self._stream:
            return
        turn.note, turn.failed, turn.ended = str(error), True, True
        self._stream = None
        self._redraw()

    def stop(self) -> bool:
        """Hear no more of the answer that streams; False when none does."""
        stream, heard = self._stream, self._heard
        if stream is None:
            return False
        stream.stop()
        turn = self._turns[-1]
        tokens = 0 if heard is None else heard.tokens
        turn.note, turn.ended = f"stopped after {counted(tokens, 'token')}", True
        self._stream = None
        self._redraw()
        return True

    # Keys

    def action_type(self) -> None:
        self.query_one(Question).focus()

    def action_stop(self) -> None:
        if not self.stop():
            self.console.say("no answer is under way")

    def action_afresh(self) -> None:
        self.stop()
        self._turns.clear()
        self._redraw()
        self.query_one(Question).focus()

    def earlier(self, by: int) -> str | None:
        """A question that was asked before; an empty line after the last of them."""
        questions = [turn.question for turn in self._turns]
        self._back = max(0, min(len(questions), self._back - by))
        if not questions:
            return None
        return questions[-self._back] if self._back else ""

    def back(self) -> bool:
        return self.stop()

    def chosen(self) -> Chosen | None:
        if not self._turns:
            return None
        turn = self._turns[-1]
        record = {"question": turn.question, "reasoning": turn.reasoning or None,
                  "text": turn.text, "note": turn.note}  # fmt: skip
        return Chosen(turn.text or turn.question, record)

    def focus_first(self) -> None:
        self.query_one(Question if self.unasked is None else Scroll).focus()


def _lanes(frame: Frame) -> str:
    sums = lane_sums(frame)
    return f"{sums.running} of {counted(frame.most_lanes, 'lane')}, {sums.waiting} waiting"


def _messages(turn: Turn) -> list[dict[str, str]]:
    """What the model is told of a turn; nothing of one that failed."""
    if turn.failed:
        return []
    return [
        {"role": "user", "content": turn.question},
        {"role": "assistant", "content": turn.text},
    ]
