"""Pages that show what happens: of a Program and its code (`vyre-py explore`), of a trace (`vyre-py trace`).

A page is a `Page`: a title, the name of a view, and its data, of JSON's types. A view is NAME.css and scripts, beside the files that all pages share:
shell.html, shell.css (colours for light and dark, panels, tables, code) and shell.js (`vyre.data`, `vyre.element`, `vyre.svg`, `vyre.tabs`, `vyre.ask`: see
its head). `page.page_html` makes one HTML document of it, with everything inside, whose policy lets no other script run and asks no
network, to keep or to send; `server.PageServer` serves it on 127.0.0.1, with answers in Python to what the page asks. So a
further page is a further view: its files, a row in `page.VIEWS`, and who makes its data.

Whatever a page shows is untrusted text. It reaches the document as JSON that holds no `<`, and scripts put it there by `textContent` alone: shell.js has
nothing that takes HTML.
"""
