"""Whether an actor sleeps: its engine then keeps neither weights nor KV (pure)."""

from __future__ import annotations

from ebbtide.wire import Refusal


class Resting:
    """`able`: the engine can. `asleep`: it sleeps, or is about to: then it is `under_way`."""

    def __init__(self, *, able: bool) -> None:
        self.asleep = self.under_way = False
        self._able = able

    def refusal(self, *, draining: bool, held: int, kv: int, loading: bool) -> Refusal | None:
        """Why it must stay awake; unsettled facts are no reason, for they lie elsewhere."""
        if draining:
            return Refusal("draining", "the actor is leaving")
        if not self._able:
            return Refusal("unable", "the engine cannot give up its weights and KV")
        if held or kv or loading:
            what = f"{held} samples, KV of {kv}, {'a load' if loading else 'no load'} under way"
            return Refusal("busy", f"the actor holds {what}")
        return None

    def begin(self) -> bool:
        """Fall asleep; whether that is news."""
        news = not self.asleep
        self.asleep = True
        self.under_way = self.under_way or news
        return news

    def wake(self) -> None:
        """A policy is to be loaded: what is under way ends first."""
        self.asleep = False

    def done(self, *, well: bool) -> None:
        """The engine sleeps, or could not."""
        self.under_way = False
        self.asleep = self.asleep and well
