// The figures above the picture: one number, a bar of its parts, and words for them.

import { bytes, element, number, percent } from './format.js';
import { PRIORITIES } from './kinds.js';
import { STATES } from './model.js';

/** Fills a tile. `parts` are `[words, count, colour]`. */
function tile(id, value, parts) {
  const shown = parts.filter(([, count]) => count > 0);
  const whole = shown.reduce((sum, [, count]) => sum + count, 0);
  const said = shown.map(([words, count, , format]) => `${(format ?? number)(count)} ${words}`);
  const [valueAt, bar, legend] = ['value', 'bar', 'legend'].map((part) => document.getElementById(`${id}-${part}`));
  if (bar.dataset.said === value + said.join()) return;
  bar.dataset.said = value + said.join();
  valueAt.textContent = value;
  bar.setAttribute('aria-label', said.join(', ') || 'none');
  bar.replaceChildren(...shown.map(([, count, colour]) => element('span', { style: { flex: `${Math.max(count / whole, 0.012)}`, background: `var(--${colour})` } })));
  legend.replaceChildren(...shown.map(([words, count, colour, format]) => element('span', { style: { '--mark': `var(--${colour})` } }, `${(format ?? number)(count)} ${words}`)));
}

export function tiles(model) {
  const { counts, lookups, cache } = model;
  const claimed = STATES.slice(1).reduce((sum, state) => sum + counts[state], 0);
  tile('units', number(claimed), STATES.filter((state) => state !== 'defined').map((state) => [state, counts[state], `state-${state}`]));
  const queued = model.queued.now;
  tile('queue', number(queued.reduce((sum, each) => sum + each, 0)), [...PRIORITIES.map((name, at) => [name, queued[at], `priority-${name}`]), ['blocked threads', model.blocked, 'is-blocked']]);
  tile('lookups', number(lookups.open + lookups.completed + lookups.failed + lookups.withdrawn), [
    ['answered', lookups.completed, 'state-good'], ['open', lookups.open, 'state-running'], ['failed', lookups.failed, 'state-failed'], ['withdrawn', lookups.withdrawn, 'state-returned'],
  ]);
  const owners = [...model.bytes.values()].sort((a, b) => b.size - a.size);
  const shades = ['accent', 'is-optimize', 'is-link', 'is-cache'];
  const named = owners.slice(0, 3).map((owner, at) => [model.name(owner.name) || 'unnamed', owner.size, shades[at], bytes]);
  tile('bytes', owners.length > 0 ? bytes(model.resident.now[0]) : '–', [...named, ['others', owners.slice(3).reduce((sum, owner) => sum + owner.size, 0), shades[3], bytes]]);
  const asked = cache.hits + cache.misses;
  const tiers = [...model.tiers].sort().map(([tier, count]) => [`to tier ${tier}`, count, 'gold']);
  const promoted = [...model.tiers.values()].reduce((sum, count) => sum + count, 0);
  const headline = promoted > 0 ? `${number(promoted)} better` : '–';
  tile('cache', asked > 0 ? `${percent(cache.hits, asked)} hits` : headline, [['hits', cache.hits, 'state-good'], ['misses', cache.misses, 'is-blocked'], ...tiers]);
}
