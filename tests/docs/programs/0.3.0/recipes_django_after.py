"""What the snippets of the Django recipe do when they are called."""
# ruff: noqa: F821

from pathlib import Path

from django.test import RequestFactory

factory = RequestFactory()
asked = factory.put("/me/phone", data=json.dumps({"token": "ExponentPushToken[a]", "platform": "ios"}))
asked.user = User()
phone = UUID(json.loads(register_phone(asked).content)["installationId"])
[listed] = relevo.list_installations(connection, owner="user-7")
assert (listed.installation_id, listed.receives) == (phone, True)
for bad in (
    {},
    {"token": "ExponentPushToken[a]", "platform": "watch"},  # web, which 0.3 refused, is a platform since 0.4
    {"token": "x"},
    {"token": None, "installationId": "7"},
):
    refused = factory.put("/me/phone", data=json.dumps(bad))
    refused.user = asked.user
    assert register_phone(refused).status_code == 400, bad
event = json.loads(ship(factory.post("/"), 17).content)["event"]
again = json.loads(ship(factory.post("/"), 17).content)["event"]
assert again == event
assert json.loads(event_state(factory.get("/"), event).content)["progress"] == "waiting"
assert Order.objects.get(pk=17).status == "shipped"
assert event_state(factory.get("/"), event + 1).status_code == 404
log_out_phone(asked, phone)
[listed] = relevo.list_installations(connection, owner="user-7")
assert not listed.receives
connection.close()

os.environ |= {"DATABASE_URL": DSN, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
runner = Runner(verbosity=0, interactive=False)
made = runner.setup_databases()
assert connection.settings_dict["NAME"].startswith("test_")
assert relevo.get(connection, ("order.shipped", "17")) is None
relevo.register(connection, relevo.Installation("ExponentPushToken[a]", owner="user-7"))
runner.teardown_databases(made)
