// What waits for what at a moment: lookups, the claims that were made for them, the lookups of those.

const LISTED_MAX = 300;

/** Trees of `{ label, kind, item, children }`, the oldest first. */
export function forestAt(model, time) {
  const openQueries = [];
  for (const query of model.queries) {
    if (query.lodged <= time && !(query.completed <= time)) openQueries.push(query);
  }
  const claimsOf = new Map();
  for (const claim of model.claims) {
    const begins = Number.isNaN(claim.claimed) ? claim.begun : claim.claimed;
    if (begins <= time && !(claim.ended <= time) && claim.query !== undefined) group(claimsOf, claim.query, claim);
  }
  const queriesOf = new Map();
  for (const query of openQueries) if (query.by !== undefined) group(queriesOf, query.by, query);
  const listed = new Set();
  const tree = (query) => {
    listed.add(query);
    const claims = (claimsOf.get(query) ?? []).map((claim) => ({
      kind: claim.begun <= time ? 'running' : 'queued',
      item: claim,
      since: claim.begun <= time ? claim.begun : claim.claimed,
      children: (queriesOf.get(claim) ?? []).filter((inner) => !listed.has(inner) && listed.size < LISTED_MAX).map(tree),
    }));
    return { kind: 'lookup', item: query, since: query.lodged, children: claims };
  };
  const open = new Set();
  for (const claims of claimsOf.values()) for (const claim of claims) open.add(claim);
  const roots = openQueries.filter((query) => query.by === undefined || !open.has(query.by));
  return { trees: roots.slice(0, LISTED_MAX).map(tree), count: openQueries.length };
}

function group(groups, key, item) {
  const items = groups.get(key);
  if (items === undefined) groups.set(key, [item]);
  else items.push(item);
}
