"""What the app of the FastAPI recipe does when it is called."""
# ruff: noqa: F821, F704, PLE1142

import httpx

await engine.dispose()  # its connections belong to a loop that is gone
async with engine.begin() as made:
    await made.execute(text("create table orders (id int primary key, owner text, status text)"))
    await made.execute(text("insert into orders values (17, 'user-9', 'new')"))
async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
    phone = await client.put("/me/phone", json={"token": "ExponentPushToken[a]"}, headers={"X-User": "user-9"})
    assert phone.status_code == 200, phone.text
    assert (await client.post("/orders/18/ship")).status_code == 404
    shipped = await client.post("/orders/17/ship")
    assert shipped.status_code == 200, shipped.text
async with sessions() as session:
    [listed] = await relevo.aio.list_installations(session, owner="user-9")
    assert listed.receives
await engine.dispose()
