"use strict";
// Three parts: the theme, the figures that follow it, the kernel table. Texts from a trace only ever become text nodes.
(() => {
  const root = document.documentElement;
  const failures = [];
  const fail = (text) => {
    failures.push(text);
    root.dataset.errors = failures.join(" | ");
  };
  addEventListener("error", (event) => fail(event.message));
  addEventListener("unhandledrejection", (event) => fail(String(event.reason)));
  addEventListener("securitypolicyviolation", (event) => fail(`blocked ${event.violatedDirective} ${event.blockedURI}`));
  for (const level of ["error", "warn"]) {
    const original = console[level].bind(console);
    console[level] = (...parts) => { fail(parts.join(" ")); original(...parts); };
  }

  // The data of a page that shares its files is one deflated script, plotly may be one: unpacked before anything is drawn.
  let packed = {};
  const unpack = async () => {
    const script = document.getElementById("packed");
    if (!script) return;
    const bytes = Uint8Array.from(atob(script.textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    packed = JSON.parse(await new Response(stream).text());
  };
  const read = (id) => {
    const text = packed[id] ?? document.getElementById(id)?.textContent;
    return text ? JSON.parse(text) : null;
  };
  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  // --- theme ---
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("addrfrac-theme"); } catch { return null; } };
  const store = (theme) => { try { localStorage.setItem("addrfrac-theme", theme); } catch { /* a file:// page may have no storage */ } };
  const current = () => stored() || (prefersDark.matches ? "dark" : "light");
  const toggle = document.getElementById("theme");
  let started = false;
  const applyTheme = () => {
    const theme = current();
    root.dataset.theme = theme;
    if (toggle) {
      toggle.textContent = theme === "dark" ? "Light" : "Dark";
      toggle.setAttribute("aria-label", `Use the ${theme === "dark" ? "light" : "dark"} theme`);
    }
    if (started) drawFigures(theme);
  };

  // --- figures ---
  const dark = read("dark-colours") || {};
  const themed = (value, theme) => {
    if (typeof value === "string") return theme === "dark" ? dark[value] || value : value;
    if (Array.isArray(value)) return value.map((item) => themed(item, theme));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, themed(item, theme)]));
    }
    return value;
  };
  const narrow = matchMedia("(max-width: 640px)");
  const drawFigures = (theme) => {
    if (typeof Plotly === "undefined") {
      if (document.querySelector("[data-figure]")) fail("plotly.min.js could not be read: the figures are missing");
      return;
    }
    for (const place of document.querySelectorAll("[data-figure]")) {
      const figure = themed(read(place.dataset.figure), theme);
      if (narrow.matches) figure.layout.font.size = 10.5;
      Plotly.react(place, figure.data, figure.layout, { responsive: true, displayModeBar: false }).catch((error) => fail(String(error)));
    }
  };

  // --- kernel table ---
  const FIRST_ROWS = 100;
  const CERTAINTY = ["name + op", "name only", "op only", "conflict"];
  // The order of kernel_table.py; texts are numbers into one list.
  const unpacked = ({ texts, policies, rows }) => rows.map(([columns, figures, shown, bounds, evidence], rank) => {
    const [run, name, short, op, provider, bound, phase] = columns.map((number) => texts[number]);
    const [launches, device_us, share_of_busy] = figures;
    const [launchesText, deviceText, shareText, certainty] = shown.map((number) => texts[number]);
    const detail = [];
    for (let at = 0; at < evidence.length; at += 2) detail.push([texts[evidence[at]], texts[evidence[at + 1]]]);
    return {
      rank, run, name, short, op, provider, bound, phase, launches, device_us, share_of_busy, certainty, detail,
      text: { launches: launchesText, device_us: deviceText, share_of_busy: shareText },
      bounds: Object.fromEntries(policies.map((policy, number) => [policy, texts[bounds[number]]])),
      haystack: [run, op, provider, phase, ...detail.map(([, text]) => text)].join("\n").toLowerCase(),
    };
  });
  const kernelTable = (box) => {
    const content = read("kernel-rows");
    const rows = unpacked(content);
    const several = new Set(rows.map((row) => row.run)).size > 1;
    const policies = content.policies;
    const columns = [
      { key: "short", title: content.noun, className: "name" },
      ...(several ? [{ key: "run", title: "run", className: "run" }] : []),
      { key: "op", title: "computes", className: "op" },
      { key: "provider", title: "owner", className: "owner" },
      { key: "bound", title: "bound", className: "bound-column" },
      { key: "phase", title: "phase", className: "phase" },
      { key: "launches", title: "launches", numeric: true },
      { key: "device_us", title: "a step", numeric: true },
      { key: "share_of_busy", title: "of busy", numeric: true },
      { key: "certainty", title: "evidence", className: "evidence", order: (row) => CERTAINTY.indexOf(row.certainty) },
    ];
    const state = { sort: "device_us", descending: true, all: false, open: new Set(), policy: box.dataset.policy };
    const bound = (row) => row.bounds[state.policy] || row.bound;
    const order = (column) => column.order || ((row) => (column.key === "bound" ? bound(row) : row[column.key]));

    const body = element("tbody");
    const head = element("tr");
    const count = element("output");
    const more = element("button", { type: "button", onclick: () => { state.all = true; fill(); } });
    const search = element("input", { type: "search", placeholder: "name, op stack, rule, shape", oninput: () => fill() });
    const choice = (title, values) => {
      const select = element("select", { onchange: () => fill() }, ...values.map((value) => element("option", { value, textContent: value || "all" })));
      return { select, label: element("label", {}, title, select) };
    };
    const distinct = (key) => ["", ...[...new Set(rows.map((row) => row[key]))].sort()];
    const filters = [
      ...(several ? [["run", choice("run", distinct("run")), (row) => row.run]] : []),
      ["op", choice("computes", distinct("op")), (row) => row.op],
      ["provider", choice("owner", distinct("provider")), (row) => row.provider],
      ["bound", choice("bound", ["", "library", "replaceable", "system", "unknown"]), bound],
      ["phase", choice("phase", distinct("phase")), (row) => row.phase],
    ];
    const policy = choice("policy", policies.length ? policies : [state.policy]);
    policy.select.value = state.policy;
    policy.select.onchange = () => { state.policy = policy.select.value; fill(); };
    const controls = element("div", { className: "controls" },
      element("label", { className: "search" }, "filter", search), ...filters.map(([, { label }]) => label), policy.label, count);

    for (const column of columns) {
      const press = element("button", { type: "button", textContent: column.title, onclick: () => {
        state.descending = state.sort === column.key ? !state.descending : Boolean(column.numeric);
        state.sort = column.key;
        fill();
      } });
      const cell = element("th", { scope: "col", className: `${column.className || ""} ${column.numeric ? "number" : ""}` }, press);
      column.cell = cell;
      head.append(cell);
    }

    const shown = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const column = columns.find((candidate) => candidate.key === state.sort);
      const value = order(column);
      const sign = state.descending ? -1 : 1;
      return rows
        .filter((row) => filters.every(([, { select }, of]) => !select.value || of(row) === select.value))
        .filter((row) => words.every((word) => row.haystack.includes(word)))
        .sort((a, b) => {
          const [x, y] = [value(a), value(b)];
          return sign * (x < y ? -1 : x > y ? 1 : 0) || a.rank - b.rank;
        });
    };
    const boundMark = (row) => element("span", { className: `bound bound-${bound(row)}`, textContent: bound(row) });
    const summary = (row) => {
      const line = element("tr", { className: "row" });
      for (const column of columns) {
        const cell = element("td", { className: `${column.className || ""} ${column.numeric ? "number" : ""} ${row[column.key] === "conflict" ? "conflict" : ""}` });
        if (column.key === "short") {
          const open = element("button", { type: "button", textContent: row.short, title: row.name, onclick: () => {
            if (!state.open.delete(row.rank)) state.open.add(row.rank);
            fill();
            body.querySelector(`[data-rank="${row.rank}"]`)?.focus();
          } });
          open.dataset.rank = row.rank;
          open.setAttribute("aria-expanded", String(state.open.has(row.rank)));
          cell.append(open);
        } else if (column.key === "bound") cell.append(boundMark(row));
        else {
          cell.textContent = row.text[column.key] ?? row[column.key];
          cell.title = cell.textContent;
        }
        line.append(cell);
      }
      return line;
    };
    const detail = (row) => {
      const list = element("dl");
      for (const [term, text] of row.detail) {
        list.append(element("dt", { textContent: term }), element("dd", { textContent: text, className: term === "name" || term === "op stack" ? "mono" : "" }));
      }
      const cell = element("td", { colSpan: columns.length }, list);
      return element("tr", { className: "detail" }, cell);
    };
    const fill = () => {
      const chosen = shown();
      const visible = state.all ? chosen : chosen.slice(0, FIRST_ROWS);
      body.replaceChildren(...visible.flatMap((row) => (state.open.has(row.rank) ? [summary(row), detail(row)] : [summary(row)])));
      const share = chosen.reduce((sum, row) => sum + row.share_of_busy, 0) / new Set(rows.map((row) => row.run)).size;
      count.textContent = `${chosen.length} of ${rows.length}, ${(100 * share).toFixed(1)} % of busy`;
      more.hidden = visible.length === chosen.length;
      more.textContent = `Show all ${chosen.length}`;
      for (const column of columns) {
        column.cell.setAttribute("aria-sort", column.key === state.sort ? (state.descending ? "descending" : "ascending") : "none");
      }
    };

    const table = element("table", { className: "kernels" },
      element("caption", { textContent: box.dataset.caption }), element("thead", {}, head), body);
    const scroll = element("div", { className: "scroll", tabIndex: 0 }, table);
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", box.dataset.caption);
    fill();
    box.replaceChildren(controls, scroll, more);
  };

  const start = () => {
    const box = document.getElementById("kernel-table");
    if (box && read("kernel-rows")) kernelTable(box);
    started = true;
    applyTheme();
    root.dataset.ready = "true";
  };
  for (const button of document.querySelectorAll("button[data-copy]")) {
    button.onclick = () => navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent)
      .then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Select and copy"; });
  }
  if (toggle) toggle.onclick = () => { store(current() === "dark" ? "light" : "dark"); applyTheme(); };
  prefersDark.addEventListener("change", applyTheme);
  applyTheme();
  unpack().then(() => window.plotlyReady).then(start).catch((error) => fail(String(error)));
})();
