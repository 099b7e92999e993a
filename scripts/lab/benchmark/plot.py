# SPDX-License-Identifier: GPL-2.0
"""The headline measurements as bars, in SVG written by hand: no library is needed."""

from html import escape

COLORS = {"tcp": "#8c8c8c", "rsiw": "#c1440e", "rsiw-crc": "#e9a178", "rsiw-table": "#f3cfb8",
          "siw": "#3b6ea5", "rxe": "#7aa6a1"}
LO = "lo1500"
# Title, unit, scale to it, and for each bar a label and where its number comes from.
PANELS = (
    ("write, 64 KiB, MTU 1500", "GB/s", 1e-3, "write_bw_65536", "stream"),
    ("send, 64 KiB, MTU 1500", "GB/s", 1e-3, "send_bw_65536", "stream"),
    ("read, 64 KiB, MTU 1500", "GB/s", 1e-3, "read_bw_65536", "stream"),
    ("write, 64 B, latency", "us", 1, "write_lat_64", "round_trip_64"),
    ("read, 64 B, latency", "us", 1, "read_lat_64", None),
    ("NFS 4.2, sequential read", "GB/s", 1e-3, "nfs_read", "nfs_read"),
)
WIDTH, PANEL_HEIGHT, BAR, LEFT = 860, 150, 18, 120


def bars(table, labels, measure, tcp_measure):
    """Candidate, label and median of a panel's bars."""
    found = []
    for candidate, label in labels.items():
        name = tcp_measure if candidate == "tcp" else measure
        value = table.median(LO, name, candidate) if name else None
        if value is not None:
            found.append((candidate, label, value))
    return found


def panel(table, labels, at, description):
    """One group of bars at (x, y)."""
    title, unit, scale, measure, tcp_measure = description
    left, top = at
    out = [f'<text x="{left}" y="{top + 14}" class="t">{escape(title)} ({unit})</text>']
    found = bars(table, labels, measure, tcp_measure)
    most = max((value for _, _, value in found), default=1)
    room = WIDTH / 2 - LEFT - 90
    for index, (candidate, label, value) in enumerate(found):
        y = top + 24 + index * (BAR + 4)
        length = max(room * value / most, 1)
        out.append(f'<text x="{left + LEFT - 6}" y="{y + 13}" text-anchor="end">'
                   f'{escape(label)}</text>')
        out.append(f'<rect x="{left + LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" '
                   f'fill="{COLORS[candidate]}"/>')
        out.append(f'<text x="{left + LEFT + length + 5:.1f}" y="{y + 13}">'
                   f'{value * scale:.3g}</text>')
    return out


def plot(table, labels):
    """The whole picture."""
    height = PANEL_HEIGHT * ((len(PANELS) + 1) // 2) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">',
           '<style>.t{font-weight:bold}</style>',
           f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    for index, description in enumerate(PANELS):
        at = (10 + (index % 2) * WIDTH // 2, 8 + (index // 2) * PANEL_HEIGHT)
        out += panel(table, labels, at, description)
    return "\n".join(out + ["</svg>", ""])
