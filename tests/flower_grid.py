"""Flower's grid in one process, which hands messages to client apps directly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flwr.app import Context, Error, Message, RecordDict


class InProcessGrid:
    """Nodes 100, 101, ..., whose contexts hold partitions 0, 1, ..."""

    def __init__(self, app: Any, m: int, config: dict[str, Any] | None = None) -> None:
        self.app = app
        self.contexts = {
            100 + i: Context(1, 100 + i, {"partition-id": i}, RecordDict(), config or {})
            for i in range(m)
        }
        self.nodes = set(self.contexts)
        self.tampers: dict[int, Callable[[Message], Message | None]] = {}

    def get_node_ids(self) -> Iterable[int]:
        return sorted(self.nodes, reverse=True)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            try:
                reply = self.app(message, self.contexts[node])
            except Exception as error:
                reply = Message(Error(0, str(error)), reply_to=message)
            if message.metadata.message_type == "train" and node in self.tampers:
                reply = self.tampers[node](reply)
            if reply is not None:
                replies.append(reply)
        return replies[::-1]
