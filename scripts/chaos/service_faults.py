"""What befalls the push services: down, slow, throttling, in doubt, or without faith in our credentials."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from chaos.scene import Scene

SERVICES = ("fcm", "apns", "webpush")
_REFUSALS = {"fcm": "UNAUTHENTICATED", "apns": "ExpiredProviderToken", "webpush": "401"}


def _befall(scene: Scene, *, fault: str, share: float = 1.0) -> None:
    scene.stage.sandbox.add_fault(fault, share=share, seconds=1.0 + scene.chance.random() * 2)
    time.sleep(2)


def _befall_native(scene: Scene, *, fault: str) -> None:
    scene.stage.sandbox.add_fault(fault, service=scene.chance.choice(SERVICES), share=0.5, seconds=2.0)
    time.sleep(2)


def _refuse_credentials(scene: Scene) -> None:
    service = scene.chance.choice(SERVICES)
    scene.stage.sandbox.add_fault(_REFUSALS[service], service=service, share=0.3, seconds=1.5)
    time.sleep(2)


KINDS: dict[str, Callable[[Scene], None]] = {
    "Expo down": partial(_befall, fault="503"),
    "Expo took it and said 500": partial(_befall, fault="500-delivered", share=0.5),
    "Expo took it and hung up": partial(_befall, fault="reset-delivered", share=0.5),
    "Expo slow": partial(_befall, fault="slow=1", share=0.5),
    "Expo throttles": partial(_befall, fault="429", share=0.5),
    "Expo refuses messages": partial(_befall, fault="MessageTooBig", share=0.3),
    "Expo refuses credentials": partial(_befall, fault="401", share=1.0),
    "FCM, APNs or Web Push refuses credentials": _refuse_credentials,
    "GOAWAY": partial(_befall_native, fault="goaway"),
    "GOAWAY after it was taken": partial(_befall_native, fault="goaway-delivered"),
    "stream refused": partial(_befall_native, fault="refused"),
    "service hung up": partial(_befall_native, fault="reset-delivered"),
}
