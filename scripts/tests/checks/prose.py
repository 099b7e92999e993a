# SPDX-License-Identifier: GPL-2.0
"""The prose of a file: its sentences, and how many words each has.

Prose is Markdown in a page, and in the comments of Rust, C, Python, shell, Make, Kconfig and configurations. A
comment becomes a page of as many lines, so that a number of a line holds for the file.
"""

import ast
import io
import re
import tokenize

# Abbreviations end no sentence. A semicolon ends one in a cell and behind code only, where it separates remarks.
END = r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bcf\.)(?<=[%s])\s+(?=[\w`\"(\[*<@$-])"
ENDS, REMARKS = re.compile(END % ".!?:"), re.compile(END % ".!?:;")
# A line of its own: fences, tables, headings, and lines that are no prose.
EDGE = re.compile(r"\s*(?:```|\||#|@\w|SPDX-|shellcheck |(?:time limit|runs on|leaves a network namespace)\b)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) ")
# A comment behind code becomes an item of a list.
BEHIND = "+ "
CLIKE = (".c", ".h")


def sentences(page):
    """The sentences of a page's prose and of its cells: (line number, sentence)."""
    lines, paragraph, fenced, begun = page.split("\n"), [], False, 0
    indent, item = 0, False
    for number, line in enumerate(lines + [""], 1):
        fence = line.lstrip().startswith("```")
        deep = len(line) - len(line.lstrip())
        # Columns are lines of their own, and so are indented lines outside of items.
        column = re.search(r"\S {2,}\S|\t", line.lstrip())
        moved = paragraph and not item and (deep >= indent + 2 or deep < indent)
        edge = EDGE.match(line) or ITEM.match(line) or not line.strip() or column or moved
        if edge or fenced:
            ends = REMARKS if paragraph[:1] and paragraph[0].startswith(BEHIND) else ENDS
            for sentence in ends.split(" ".join(paragraph)):
                yield begun, sentence
            paragraph, item = [], False
        fenced ^= fence
        if fenced or fence or not line.strip():
            continue
        if line.lstrip().startswith("|"):
            for cell in line.split(" | "):
                for sentence in REMARKS.split(cell):
                    yield number, sentence
        elif not EDGE.match(line) or line.lstrip().startswith("@"):
            if not paragraph:
                begun, indent, item = number, deep, bool(ITEM.match(line))
            paragraph.append(line.strip())


def words_of(sentence):
    """How many words a sentence has: code counts as one, and a link's address as none."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "X", sentence))
    return sum(bool(re.search(r"\w", word)) for word in plain.split())


def page_of(path, text):
    """The prose of a file as a page with the lines of the file."""
    if path.endswith(".md"):
        return text
    page = [""] * (text.count("\n") + 1)
    if path.endswith(CLIKE):
        found = c_comments(text)
    elif path.endswith(".rs"):
        found = rust_comments(text)
    elif path.endswith(".py") or text.startswith("#!/usr/bin/python3"):
        found = python_comments(text)
    else:
        found = shell_comments(path, text)
    last, behind = 0, None
    for number, column, code, comment in sorted(found):
        # A comment of another column does not continue the one behind code in the line before.
        new = code or (behind not in (None, column) and number == last + 1)
        behind = column if code else behind if number == last + 1 else None
        last = number
        page[number - 1] = (BEHIND if new else "") + comment.rstrip()
    return "\n".join(page)


def rust_comments(text):
    """The comments of Rust: number of the line, column, whether code is in front, text. So are the others."""
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r"""^((?:[^"'/]|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)'|'|/(?!/))*)//[/!]? ?(.*)$""", line)
        if found:
            yield number, len(found[1]), bool(found[1].strip()), found[2]


def c_comments(text):
    """The comments of C."""
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        code = False
        if inside:
            comment = re.sub(r"^\s*\*(?!/) ?", "", line)
        elif found := re.match(r'^((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?![*/]))*)/([*/])\*?<? ?(.*)$', line):
            comment, inside, column, code = found[3], found[2] == "*", len(found[1]), bool(found[1].strip())
        else:
            continue
        if "*/" in comment:
            comment, inside = comment.split("*/")[0], False
        yield number, column, code, comment


def python_comments(text):
    """The comments and docstrings of Python."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            row, column = token.start
            yield row, column, bool(token.line[:column].strip()), re.sub(r"^#+ ?", "", token.string)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            first = node.body[0].value
            lines = first.value.split("\n")
            deep = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
            for at, line in enumerate(lines):
                yield first.lineno + at, first.col_offset, False, line[deep:] if at else line


def shell_comments(path, text):
    """The comments of shell, Make, Kconfig and configurations, and the help of Kconfig."""
    helping = None
    for number, line in enumerate(text.split("\n"), 1):
        found = re.match(r"^(|.*?[\s;])#(?!!)(?: (.*)|)$", line)
        deep = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        if path.endswith("Kconfig"):
            if helping is not None and line.strip() and deep <= helping:
                helping = None
            if helping is not None:
                yield number, 0, False, line.strip()
            elif line.strip() == "help":
                helping = deep
        if found:
            yield number, len(found[1]), bool(found[1].strip()), found[2] or ""
