"""Responses as the public interfaces document them."""

from __future__ import annotations

import json

from tests.loopback_server import Reply

JSON = {"content-type": "application/json; charset=utf-8"}


def wikipedia(*titles: str) -> Reply:
    rows = [
        {
            "ns": 0,
            "title": title,
            "pageid": number,
            "size": 4000,
            "wordcount": 500,
            "snippet": f'About <span class="searchmatch">{title}</span> &amp; more',
            "timestamp": "2026-10-01T00:00:00Z",
        }
        for number, title in enumerate(titles, start=1)
    ]
    body = {"batchcomplete": True, "query": {"searchinfo": {"totalhits": 2}, "search": rows}}
    return Reply(json.dumps(body).encode(), headers=JSON)


def github(*names: str) -> Reply:
    items = [
        {
            "id": number,
            "full_name": name,
            "html_url": f"https://github.com/{name}",
            "description": "A <b>library</b>\nfor retries",
            "stargazers_count": 42,
            "language": "Python",
        }
        for number, name in enumerate(names, start=1)
    ]
    body = {"total_count": len(items), "incomplete_results": False, "items": items}
    return Reply(json.dumps(body).encode(), headers=JSON)


def arxiv(*titles: str, error: str = "") -> Reply:
    entries = "".join(
        f"""<entry><id>http://arxiv.org/abs/2601.0000{number}v1</id>
        <published>2026-01-01T00:00:00Z</published><title>{title}
          in two lines</title><summary>We study {title}.</summary>
        <author><name>A. One</name></author><author><name>B. Two</name></author>
        <author><name>C. Three</name></author><author><name>D. Four</name></author></entry>"""
        for number, title in enumerate(titles, start=1)
    )
    if error:
        entries = f"""<entry><id>http://arxiv.org/api/errors#incorrect_id</id>
        <title>Error</title><summary>{error}</summary></entry>"""
    feed = f"""<?xml version="1.0" encoding="UTF-8"?>
        <feed xmlns="http://www.w3.org/2005/Atom"><title>ArXiv Query</title>{entries}</feed>"""
    return Reply(feed.strip().encode(), headers={"content-type": "application/atom+xml"})


def mojeek(*titles: str) -> Reply:
    items = "".join(
        f'<li><h2><a href="https://example.org/{title}">{title}</a></h2><p class="s">Body</p></li>'
        for title in titles
    )
    page = f'<html><body><ul class="results-standard">{items}</ul></body></html>'
    return Reply(page.encode(), headers={"content-type": "text/html"})
