// The tables beside the picture. Each is filled only while it is seen.

import { forestAt } from './forest.js';
import { bytes, duration, element, number, percent } from './format.js';
import { after } from './columns.js';
import { CATEGORIES, sliceOf } from './model.js';
import { PRIORITIES } from './kinds.js';

const ROWS_MAX = 100;

export class Panels {
  constructor(model, timeline, page) {
    Object.assign(this, { model, timeline, page, chosen: undefined, found: {}, unit: {}, answer: undefined, shown: 'selection' });
    this.tabs = [...document.querySelectorAll('[role=tab]')];
    for (const tab of this.tabs) tab.addEventListener('click', () => this.show(tab.getAttribute('aria-controls')));
    document.getElementById('tabs').addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by === undefined) return;
      const at = this.tabs.findIndex((tab) => tab.getAttribute('aria-selected') === 'true');
      const tab = this.tabs[(at + by + this.tabs.length) % this.tabs.length];
      this.show(tab.getAttribute('aria-controls'));
      tab.focus();
    });
  }

  show(name) {
    this.shown = name;
    for (const tab of this.tabs) {
      const isShown = tab.getAttribute('aria-controls') === name;
      tab.setAttribute('aria-selected', isShown);
      tab.tabIndex = isShown ? 0 : -1;
      document.getElementById(tab.getAttribute('aria-controls')).hidden = !isShown;
    }
    this.fill();
  }

  fill() {
    const made = this[this.shown]();
    // An open list, or one that a key is at, stays as it is.
    const panel = document.getElementById(this.shown);
    if (made !== undefined && !panel.contains(document.activeElement)) panel.replaceChildren(...made);
  }

  refill() {
    const { activeElement } = document;
    if (document.getElementById('panel').contains(activeElement) && activeElement.getAttribute('role') !== 'tab') activeElement.blur();
    this.fill();
  }

  selection() {
    const { model, timeline, answer } = this;
    if (answer !== undefined) return [element('h2', {}, answer.symbol), element('pre', { class: 'answer', tabindex: '0' }, answer.said)];
    const slice = timeline.selected;
    if (slice === undefined) {
      return [element('p', { class: 'hint' }, 'Click on anything in the picture, or move with the arrow keys. ', element('kbd', {}, '?'), ' lists all keys.'), this.legend()];
    }
    const thing = model.things[slice.subject];
    const rows = [
      ['Thread', model.lanes[slice.thread].name],
      ['Began', duration(slice.start - timeline.begin)],
      ['Took', `${duration(slice.end - slice.start)}${slice.isOpen ? ' so far' : ''}`],
    ];
    const parts = [
      element('h2', {}, element('i', { class: 'mark', style: { background: `var(--is-${CATEGORIES[slice.category]})` } }), model.name(slice.name) || CATEGORIES[slice.category]),
    ];
    if (thing?.isQuery) parts.push(facts(rows), this.queryFacts(thing));
    else if (thing !== undefined) parts.push(facts(rows), this.claimFacts(thing), this.unitCode(thing));
    else parts.push(facts(rows));
    return parts;
  }

  claimFacts(claim) {
    const { model } = this;
    const chain = [];
    for (let at = claim; at !== undefined && chain.length < 12; at = at.by) chain.push(at);
    const asked = claim.query === undefined ? '–' : this.link(model.name(claim.query.name), () => this.choose(claim.query));
    return element('section', {}, element('h3', {}, 'Unit'), facts([
      ['Name', this.link(model.name(claim.name), () => this.select(claim))],
      ['State', claim.state ?? 'began before the first note'],
      ['Priority', PRIORITIES[claim.priority]],
      ['Queued for', duration(claim.begun - claim.claimed)],
      ['Worked for', duration((Number.isNaN(claim.ended) ? model.now : claim.ended) - claim.begun)],
      ['Blocked for', duration(claim.blocked)],
      ['Emitted after', duration(claim.emitted - claim.begun)],
      ['Wanted by', asked],
    ]), chain.length > 1 ? element('section', {}, element('h3', {}, 'Asked for by'), element('ol', { class: 'chain' }, ...chain.slice(1).map((each) => element('li', {}, this.link(model.name(each.name), () => this.select(each)))))) : null);
  }

  /** Asks the engine about a unit: why it is not Ready, its IR, its code. */
  async askUnit(claim) {
    const { model } = this;
    const [name, symbol] = [model.name(claim.name), claim.query === undefined ? '' : model.name(claim.query.name)];
    const unit = (this.unit = { claim, said: 'Asking the engine.' });
    this.info ??= await fetch('/info').then((answer) => answer.json()).catch(() => undefined);
    if (this.info?.answers === false) unit.said = 'No engine is here to ask: a recording has neither IR nor code.';
    else {
      const answer = await fetch(`/unit?name=${encodeURIComponent(name)}&symbol=${encodeURIComponent(symbol)}`).catch(() => undefined);
      if (answer?.ok) unit.told = await answer.json();
      else unit.said = 'The engine is gone, and its code with it.';
    }
    if (this.unit === unit) this.fill();
  }

  unitCode(claim) {
    if (this.unit.claim !== claim) this.askUnit(claim);
    const { told, said } = this.unit;
    if (told === undefined) return element('p', { class: 'quiet' }, said);
    // Made once, so that a text that was opened stays open.
    return (this.unit.shown ??= unitSection(told));
  }

  queryFacts(query) {
    const { model, page } = this;
    return element('section', {}, element('h3', {}, 'Lookup'), facts([
      ['First symbol', model.name(query.name)],
      ['State', query.state],
      ['Took', duration((Number.isNaN(query.completed) ? model.now : query.completed) - query.lodged)],
      ['Asked by', query.by === undefined ? 'the program' : this.link(model.name(query.by.name), () => this.select(query.by))],
    ]), element('p', { class: 'actions' },
      element('button', { onclick: () => this.choose(query) }, 'Critical path'),
      element('button', { onclick: () => page.ask(model.name(query.name)) }, 'Why?')));
  }

  legend() {
    return element('ul', { class: 'colours', 'aria-label': 'Colours' }, ...CATEGORIES.map((name) => element('li', {}, element('i', { class: 'mark', style: { background: `var(--is-${name})` } }), name)));
  }

  link(text, act) {
    return element('button', { class: 'link', onclick: act, title: text }, text || '–');
  }

  /** Shows a claim's slice. */
  select(claim) {
    const { model, timeline } = this;
    const slice = claim.thread < 0 ? undefined : model.sliceAt(claim.thread, claim.depth, claim.begun);
    if (slice !== undefined) this.page.select(slice, true);
  }

  choose(query) {
    this.chosen = query;
    this.show('path');
    this.refill();
    this.page.redraw();
  }

  /** Asks the server for the critical path of a lookup, once it has ended. */
  async find(query) {
    const found = (this.found = { query, isOpen: Number.isNaN(query.completed), steps: [], said: 'Asking for the path.' });
    this.timeline.path = found.steps;
    if (found.isOpen) found.said = 'This lookup has not ended. Its path is known when it has.';
    else {
      const answer = await fetch(`/path?session=${query.session}&lookup=${query.id}`).catch(() => undefined);
      const claims = this.model.session(query.session).claims;
      const shown = (step) => ({ ...step, claim: claims.get(step.claim), thread: claims.get(step.claim)?.thread ?? -1 });
      if (answer?.ok) found.steps = (await answer.json()).map(shown);
      else found.said = (await answer?.text()) ?? 'The program is gone, and has told no path of this lookup.';
    }
    if (this.found !== found) return; // Another one was asked for meanwhile.
    this.timeline.path = found.steps;
    this.fill();
    this.page.redraw();
  }

  path() {
    const { model } = this;
    const slowest = model.slowest(ROWS_MAX);
    if (slowest.length === 0) return [element('p', { class: 'hint' }, 'No lookup has been answered yet.')];
    const query = (this.chosen ??= slowest[0]);
    if (this.found.query !== query || (this.found.isOpen && !Number.isNaN(query.completed))) this.find(query);
    const { steps, said } = this.found;
    if (!slowest.includes(query)) slowest.unshift(query);
    const choice = element('select', { id: 'lookup', onchange: (event) => this.choose(slowest[event.target.selectedIndex]) },
      ...slowest.map((each) => element('option', { selected: each === query }, `${duration(each.completed - each.lodged)}  ${model.name(each.name)}`)));
    if (steps.length === 0) return [element('label', { for: 'lookup' }, 'Lookup'), choice, element('p', { class: 'hint' }, said)];
    const whole = steps.reduce((sum, step) => sum + step.to - step.from, 0);
    const sums = Map.groupBy(steps, (step) => step.kind);
    const share = ([kind, all]) => [kind, all.reduce((sum, step) => sum + step.to - step.from, 0)];
    const longest = steps.toSorted((a, b) => b.to - b.from - (a.to - a.from)).slice(0, ROWS_MAX);
    const listed = steps.filter((step) => longest.includes(step));
    return [
      element('label', { for: 'lookup' }, 'Lookup'), choice,
      element('p', { class: 'value' }, duration(whole), element('small', {}, ` on ${number(steps.length)} steps`)),
      element('div', { class: 'bar' }, ...[...sums].map(share).map(([kind, sum]) => element('span', { class: `step-${kind}`, style: { flex: `${sum / whole}` } }))),
      element('p', { class: 'legend' }, ...[...sums].map(share).map(([kind, sum]) => element('span', { class: `marked step-${kind}` }, `${duration(sum)} ${SAID[kind]}`))),
      element('ol', { class: 'steps' }, ...listed.map((step) => element('li', {},
        element('button', { class: 'step', onclick: () => this.goTo(step) },
          element('i', { class: `mark step-${step.kind}` }),
          element('span', { class: 'name' }, `${step.unit || '–'}`),
          element('span', { class: 'said' }, step.thread < 0 || step.kind !== 'work' ? SAID[step.kind] : model.lanes[step.thread]?.name ?? ''),
          element('span', { class: 'time' }, duration(step.to - step.from)),
          element('span', { class: 'share', style: { width: `${(100 * (step.to - step.from)) / whole}%` } }))))),
    ];
  }

  goTo(step) {
    const { timeline, page } = this;
    const margin = (step.to - step.from) * 0.6;
    timeline.isFollowing = false;
    timeline.show(step.from - margin, step.to + margin);
    if (step.claim !== undefined) timeline.selected = this.model.sliceAt(step.claim.thread, step.claim.depth, step.claim.begun);
    page.redraw();
  }

  waiting() {
    const { model, timeline } = this;
    const time = timeline.cursor ?? model.now;
    const { trees, count } = forestAt(model, time);
    const node = ({ kind, item, since, children }) => element('li', { role: 'treeitem', 'aria-expanded': children.length > 0 ? 'true' : undefined },
      element('span', { class: 'node' },
        element('i', { class: `mark node-${kind}` }),
        item.isQuery ? this.link(model.name(item.name), () => this.choose(item)) : this.link(model.name(item.name), () => this.select(item)),
        element('small', {}, `${kind} · ${duration(time - since)}`),
        item.isQuery && timeline.cursor === undefined ? element('button', { class: 'why', onclick: () => this.page.ask(model.name(item.name)) }, 'why?') : null),
      children.length > 0 ? element('ul', { role: 'group' }, ...children.map(node)) : null);
    const when = timeline.cursor === undefined ? 'Now' : `At ${duration(time - timeline.begin)}`;
    return [
      element('p', { class: 'hint' }, `${when}: ${number(count)} lookups wait. `, timeline.cursor === undefined ? 'Click into the picture to see another moment.' : this.link('Now', () => { timeline.cursor = undefined; this.refill(); this.page.redraw(); })),
      trees.length > 0 ? element('ul', { role: 'tree', 'aria-label': 'What waits for what', class: 'tree' }, ...trees.map(node)) : element('p', { class: 'quiet' }, 'Nothing waits.'),
    ];
  }

  units() {
    const { model } = this;
    const all = [...model.units.values()].sort((a, b) => b.time - a.time);
    const most = all[0]?.time ?? 1;
    return [table(`${number(all.length)} units, the longest work first`, ['Unit', 'Work', 'Queued', 'Times'], all.slice(0, ROWS_MAX).map((unit) => [
      element('div', { class: 'unit' }, this.link(model.name(unit.name), () => this.selectUnit(unit.name)),
        element('div', { class: 'bar thin', style: { width: `${(100 * unit.time) / most}%` } }, ...phasesOf(unit))),
      duration(unit.time), duration(unit.queued), number(unit.claims)]))];
  }

  selectUnit(name) {
    const claims = this.model.claims.filter((claim) => claim.name === name && claim.thread >= 0);
    const longest = claims.reduce((best, claim) => (claim.ended - claim.begun > best.ended - best.begun ? claim : best), claims[0]);
    if (longest !== undefined) this.select(longest);
  }

  memory() {
    const { model } = this;
    const owners = [...model.bytes.values()].sort((a, b) => b.size - a.size);
    const whole = model.resident.now[0];
    if (owners.length === 0) return [element('p', { class: 'quiet' }, 'No memory has been noted yet.')];
    return [table(`${bytes(whole)} resident, by owner`, ['Owner', 'Resident', 'Share', 'At most'], owners.slice(0, ROWS_MAX).map((owner) => [
      element('div', { class: 'unit' }, element('span', {}, model.name(owner.name) || 'unnamed'), element('div', { class: 'bar thin', style: { width: `${(100 * owner.size) / Math.max(1, whole)}%` } }, element('span', { style: { flex: '1', background: 'var(--accent)' } }))),
      bytes(owner.size), percent(owner.size, whole), bytes(owner.most)]))];
  }

  /** The longest slices that are in view, for those who cannot see the picture. */
  view() {
    const { model, timeline } = this;
    const found = [];
    for (const { lane } of timeline.layout()) {
      lane.tracks.forEach((track, depth) => {
        const first = after(track.end, track.length, timeline.from);
        const end = after(track.start, track.length, timeline.to);
        const step = Math.max(1, Math.floor((end - first) / 2000));
        for (let at = first; at < end; at += step) found.push({ thread: lane.thread, depth, at, ...sliceOf(track, at) });
      });
    }
    found.sort((a, b) => b.end - b.start - (a.end - a.start));
    return [table('The longest slices in view', ['What', 'Thread', 'From', 'Took'], found.slice(0, 50).map((slice) => [
      this.link(`${model.name(slice.name) || CATEGORIES[slice.category]}${slice.category === 6 ? ' (blocked)' : ''}`, () => this.page.select(slice)),
      model.lanes[slice.thread].name, duration(slice.start - timeline.begin), duration(slice.end - slice.start)]))];
  }
}

function unitSection(told) {
  const texts = (head, all, none) => [element('h3', {}, head), ...(all.length > 0
    ? all.map(({ title, text }) => element('details', {}, element('summary', {}, title), element('pre', { class: 'answer code', tabindex: '0' }, text)))
    : [element('p', { class: 'quiet' }, none)])];
  const why = told.why === null ? element('p', { class: 'quiet' }, 'None of its symbols is known to the engine now.') : element('pre', { class: 'answer', tabindex: '0' }, told.why.why);
  return element('section', { id: 'unit-code' }, element('h3', {}, 'Why'), why,
    ...texts('IR', told.ir, 'No IR is kept of this unit: it came as an object or from a cache, was compiled before the page was open, or has made room for newer ones.'),
    ...texts('Code', told.code, 'No code of this unit is linked now.'));
}

const SAID = { work: 'work', queued: 'in the queue', unknown: 'not known' };

function phasesOf(unit) {
  const counted = unit.phases.reduce((sum, each) => sum + Math.max(0, each), 0);
  const parts = [...unit.phases].map((time, at) => [CATEGORIES[at], time]);
  parts[0][1] = Math.max(0, unit.time - counted);
  return parts.filter(([, time]) => time > 0).map(([name, time]) => element('span', { title: `${name} ${duration(time)}`, style: { flex: `${time}`, background: `var(--is-${name})` } }));
}

function facts(rows) {
  return element('dl', { class: 'facts' }, ...rows.flatMap(([name, value]) => [element('dt', {}, name), element('dd', {}, value)]));
}

function table(caption, heads, rows) {
  return element('table', {}, element('caption', {}, caption),
    element('thead', {}, element('tr', {}, ...heads.map((head) => element('th', { scope: 'col' }, head)))),
    element('tbody', {}, ...rows.map((cells) => element('tr', {}, ...cells.map((cell) => element('td', {}, cell))))));
}
