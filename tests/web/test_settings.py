"""The settings panel: sampler, curve, facts and bars (SRV-70, SAMP-14)."""


def test_sampler_settings_are_sent_only_when_set(chat):
    chat.ask("hello")
    assert set(chat.requests("/v1/chat/completions")[-1]) == {"model", "messages", "stream"}
    chat.page.click("#panel-toggle")
    chat.page.get_by_role("tab", name="Sampling").click()
    assert chat.page.get_by_label("Temperature", exact=True).get_attribute("placeholder") == "0.6"
    chat.page.get_by_label("Temperature", exact=True).fill("0.3")
    chat.page.get_by_label("Top-p", exact=True).fill("2")
    chat.page.get_by_text("Top-p must be at most 1.").wait_for()
    chat.page.get_by_label("Seed").fill("7")
    chat.page.get_by_label("Stop texts").fill("END")
    chat.page.get_by_role("tab", name="Prompt").click()
    chat.page.fill("#system", "Be brief.")
    chat.ask("hello")
    body = chat.requests("/v1/chat/completions")[-1]
    assert (body["temperature"], body["seed"], body["stop"]) == (0.3, 7, ["END"]) and "top_p" not in body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    chat.page.reload()  # the open panel stays open
    chat.page.get_by_role("tab", name="Sampling").click()
    assert chat.page.get_by_label("Temperature", exact=True).input_value() == "0.3"


def test_the_curve_is_edited_with_pointer_and_keys(chat):
    page = chat.page
    page.click("#panel-toggle")
    page.get_by_role("tab", name="Sampling").click()
    page.get_by_label("Shape probabilities with a curve").check()
    point = page.get_by_role("slider", name="Point 2 of 4")
    assert point.get_attribute("aria-valuetext") == "1 % becomes 1 %"
    point.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert point.get_attribute("aria-valuetext") == "1 % becomes 0.751 %"
    box = page.get_by_role("slider", name="Point 3 of 4").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 + 10, box["y"] - 25, steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Add point").click()
    page.get_by_role("slider", name="Point 5 of 5").focus()
    page.keyboard.press("Delete")
    chat.shot("curve")
    chat.ask("hello")
    points = chat.requests("/v1/chat/completions")[-1]["curve"]["points"]
    assert len(points) == 4 and points[-1]["y_pct"] > 10
    assert all(a["x_pct"] < b["x_pct"] and a["y_pct"] <= b["y_pct"] for a, b in zip(points, points[1:]))


def test_stats_are_asked_for_only_while_they_can_be_seen(chat):
    page = chat.page
    page.wait_for_timeout(300)
    assert chat.requests("/stats") == []
    page.click("#model-chip")
    page.get_by_role("meter", name="Prompt cache, memory").wait_for()
    memory = page.get_by_role("meter", name="Memory for conversations")
    assert memory.get_attribute("aria-valuenow") == "33" and "346 MiB of weights" in page.locator("#bars").inner_text()
    assert "82 % hits" in page.locator("#bars").inner_text()
    assert "32,768" in page.locator("#bars").inner_text()
    assert "reasoning, tools" in page.locator("#facts").inner_text()
    page.wait_for_timeout(2300)
    asked = len(chat.requests("/stats"))
    assert asked >= 2
    page.click("#panel-close")
    page.wait_for_timeout(2300)
    assert len(chat.requests("/stats")) <= asked + 1
