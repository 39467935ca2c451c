//! The rules of lookups: what is seen where, whom to ask for what is missing, when a lookup cannot succeed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::SymbolFlags;

use super::world::*;

/// A dylib's definition of a name, as a lookup sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sight {
    Visible(usize),
    Hidden,
    Nothing,
}

impl World {
    /// A lookup begins. It may end at once.
    pub(super) fn look_up(&mut self, number: usize, query: Query, by_task: bool) {
        let gone = query.order.iter().find(|(dylib, _)| !self.dylibs.contains_key(dylib)).copied();
        self.queries.insert(number, query);
        if !self.admits(by_task) {
            self.fail_query(number, Wrong::Closed);
        } else if let Some((dylib, _)) = gone {
            self.fail_query(number, Wrong::DylibRemoved(dylib));
        } else {
            let symbols = self.queries[&number].symbols.clone();
            let walk = Walk { remaining: symbols, ..Walk::default() };
            self.queries.get_mut(&number).expect("just inserted").phase = Phase::Walking(walk);
            self.walk(number);
        }
    }

    pub(super) fn withdraw(&mut self, query: usize) {
        if self.queries.remove(&query).is_some() {
            self.news.withdrawn.insert(query);
        }
    }

    /// A generator has done with a lookup; the next ones in its queue are served.
    pub(super) fn generated(&mut self, generator: usize, query: usize, succeeds: bool) {
        self.leave(generator, query);
        match succeeds {
            true => self.walk(query),
            false => self.fail_query(query, Wrong::Generator),
        }
        self.serve_next(generator);
    }

    /// A generator goes on with a lookup apart.
    pub(super) fn serve_apart(&mut self, generator: usize, query: usize) {
        if let Some(walk) = self.walk_of(query) {
            walk.apart = true;
        }
        self.leave(generator, query);
        self.serve_next(generator);
    }

    /// A generator that is free serves one alone again with which it went on apart.
    pub(super) fn serve_alone(&mut self, number: usize, query: usize) {
        let is_free = self.generators.get(&number).is_some_and(|generator| generator.serves.is_none());
        if is_free && let Some(walk) = self.walk_of(query).filter(|walk| walk.apart) {
            (walk.apart, walk.question) = (false, None);
            self.generators.get_mut(&number).expect("just seen").serves = Some(query);
        }
    }

    fn walk_of(&mut self, query: usize) -> Option<&mut Walk> {
        match &mut self.queries.get_mut(&query)?.phase {
            Phase::Walking(walk) => Some(walk),
            Phase::Lodged { .. } => None,
        }
    }

    fn leave(&mut self, generator: usize, query: usize) {
        if let Some(generator) = self.generators.get_mut(&generator).filter(|it| it.serves == Some(query)) {
            generator.serves = None;
        }
    }

    fn serve_next(&mut self, generator: usize) {
        while let Some(generator) = self.generators.get_mut(&generator)
            && generator.serves.is_none()
            && let Some(next) = generator.queue.pop_front()
        {
            self.walk(next);
        }
    }

    /// Says whether the dylib is there and takes it. One that is not taken goes.
    pub(super) fn add_generator(&mut self, number: usize, dylib: usize) -> bool {
        let open = self.stage != Stage::Closed;
        let Some(row) = self.dylibs.get_mut(&dylib).filter(|_| open) else {
            self.news.generators_gone.insert(number);
            return false;
        };
        row.generators.push(number);
        self.generators.insert(number, Generator { dylib, ..Generator::default() });
        true
    }

    /// A generator goes: who stands in its queue fails, whom it serves may still be served.
    pub(super) fn remove_generator(&mut self, number: usize) {
        let Some(generator) = self.generators.remove(&number) else { return };
        if let Some(dylib) = self.dylibs.get_mut(&generator.dylib) {
            dylib.generators.retain(|other| *other != number);
        }
        self.news.generators_gone.insert(number);
        for query in generator.queue {
            self.fail_query(query, Wrong::Generator);
        }
    }

    /// Goes on along the order, asking the generators of each dylib for what neither it nor one before it has, until one
    /// must be waited for or there is nothing left to ask.
    fn walk(&mut self, number: usize) {
        let Some(Query { order, made_for, phase: Phase::Walking(walk), .. }) = self.queries.get(&number)
        else {
            return;
        };
        let (order, made_for, mut walk) = (order.clone(), *made_for, walk.clone());
        while let Some(&(dylib, all)) = order.get(walk.position) {
            let sees = |name: usize| self.sight(dylib, name, all);
            walk.remaining.retain(|(name, _)| !matches!(sees(*name), Sight::Visible(_)));
            let candidates: Vec<_> =
                walk.remaining.iter().filter(|(name, _)| sees(*name) == Sight::Nothing).copied().collect();
            let here = || VecDeque::from(self.dylibs[&dylib].generators.clone());
            let ahead = walk.ahead.get_or_insert_with(here);
            let Some(&asked) = ahead.front().filter(|_| !candidates.is_empty()) else {
                (walk.position, walk.ahead) = (walk.position + 1, None);
                continue;
            };
            if made_for.is_some_and(|made_for| !self.queries.contains_key(&made_for)) {
                return self.fail_query(number, Wrong::Closed);
            }
            let Some(serves) = self.generators.get(&asked).map(|generator| generator.serves) else {
                // Removed before the lookup came to it.
                return self.fail_query(number, Wrong::Generator);
            };
            if self.leads_back(made_for, asked, serves) {
                return self.fail_query(number, Wrong::Generator);
            }
            (walk.at, walk.apart, walk.question) = (Some(asked), false, None);
            let generator = self.generators.get_mut(&asked).expect("just seen");
            if serves.is_some() {
                generator.queue.push_back(number);
            } else {
                generator.serves = Some(number);
                ahead.pop_front();
                self.news.asked.push(Asked { generator: asked, query: number, symbols: candidates });
            }
            self.queries.get_mut(&number).expect("just seen").phase = Phase::Walking(walk);
            if let Some(asks) = made_for.and_then(|made_for| self.walk_of(made_for)).filter(|asks| asks.apart)
            {
                asks.question = Some(number);
            }
            return;
        }
        self.conclude(number);
    }

    /// Whether a lookup made for `made_for` is made, over however many lookups, for one that the generator `serves`, or serves apart.
    fn leads_back(&self, made_for: Option<usize>, generator: usize, serves: Option<usize>) -> bool {
        let mut maker = made_for;
        while let Some(number) = maker {
            let walk = |query: &Query| match &query.phase {
                Phase::Walking(walk) => Some((walk.apart && walk.at == Some(generator), query.made_for)),
                Phase::Lodged { .. } => None,
            };
            match self.queries.get(&number).and_then(walk) {
                _ if serves == maker => return true,
                Some((true, _)) => return true,
                Some((false, next)) => maker = next,
                None => return false,
            }
        }
        false
    }

    /// No further definition will come: the lookup is refused, and nothing has changed, or it claims definitions that
    /// were never searched and waits for those that are not far enough.
    fn conclude(&mut self, number: usize) {
        let Query { symbols, order, ready, flags_only, alias, .. } = self.queries[&number].clone();
        let first = |name: usize| {
            let seen = |&(dylib, all): &(usize, bool)| match self.sight(dylib, name, all) {
                Sight::Visible(definition) => Some(definition),
                _ => None,
            };
            order.iter().find_map(seen)
        };
        let found: Vec<_> = symbols.iter().map(|&(name, optional)| (name, optional, first(name))).collect();
        if flags_only {
            return self.answer_flags(number, &found);
        }
        let wrongs = self.refusals(&found);
        if !wrongs.is_empty() {
            return self.end_query(number, Outcome::Wrong(wrongs));
        }
        let found: Vec<_> = found.into_iter().filter_map(|(name, _, found)| Some((name, found?))).collect();
        let edge = alias.and_then(|alias| Some((alias, found.first()?.1)));
        if let Some(cycle) = edge.and_then(|(alias, source)| self.alias_cycle(alias, source)) {
            return self.fail_query(number, Wrong::AliasCycle(cycle));
        }
        for &(_, definition) in &found {
            self.search(definition);
        }
        let (mut waits, mut so_far) = (Vec::new(), BTreeMap::new());
        for (name, definition) in found {
            match self.says(definition, ready) {
                Some(said) => drop(so_far.insert(name, said)),
                None => waits.push((name, definition)),
            }
        }
        self.queries.get_mut(&number).expect("just seen").phase =
            Phase::Lodged { waits, found: so_far, edge };
    }

    fn answer_flags(&mut self, number: usize, found: &[(usize, bool, Option<usize>)]) {
        let missing: BTreeSet<_> = found
            .iter()
            .filter(|(_, optional, found)| !optional && found.is_none())
            .map(|(name, ..)| *name)
            .collect();
        if !missing.is_empty() {
            return self.fail_query(number, Wrong::NotFound(missing));
        }
        let flags = |(name, _, found): &(usize, bool, Option<usize>)| {
            Some((*name, (0, self.definitions[&(*found)?].flags)))
        };
        let found = found.iter().filter_map(flags).collect();
        self.end_query(number, Outcome::Found(found));
    }

    /// Every reason for which a lookup cannot succeed.
    fn refusals(&self, found: &[(usize, bool, Option<usize>)]) -> Vec<Wrong> {
        let is = |found: &Option<usize>, holds: fn(&Definition) -> bool| {
            found.is_some_and(|number| holds(&self.definitions[&number]))
        };
        // A definition without an address is no answer to a lookup that requires one.
        let effects_only = |definition: &Definition| {
            definition.flags.contains(SymbolFlags::MATERIALIZATION_SIDE_EFFECTS_ONLY)
        };
        let missing: BTreeSet<_> = found
            .iter()
            .filter(|(_, optional, found)| !optional && (found.is_none() || is(found, effects_only)))
            .map(|(name, ..)| *name)
            .collect();
        let failed: BTreeSet<_> = found
            .iter()
            .filter(|(_, _, found)| is(found, |definition| definition.standing == Standing::Failed))
            .filter_map(|(_, _, found)| *found)
            .collect();
        let mut wrongs = Vec::new();
        if !missing.is_empty() {
            wrongs.push(Wrong::NotFound(missing));
        }
        if !failed.is_empty() {
            let causes = failed.iter().flat_map(|number| &self.definitions[number].causes).copied().collect();
            wrongs.push(Wrong::Failed { fallen: failed, causes });
        }
        wrongs
    }

    /// The cycle that an alias and its source close with what other aliases wait for: names, the first again at the end.
    fn alias_cycle(&self, alias: usize, source: usize) -> Option<Vec<usize>> {
        let mut sources = BTreeMap::new();
        for query in self.queries.values() {
            if let Phase::Lodged { edge, .. } = &query.phase {
                sources.extend(*edge);
            }
        }
        let (mut cycle, mut cursor) = (vec![alias], source);
        while cursor != alias {
            cycle.push(cursor);
            cursor = *sources.get(&cursor)?;
        }
        cycle.push(alias);
        Some(cycle.into_iter().map(|number| self.ever[&number].0).collect())
    }

    fn sight(&self, dylib: usize, name: usize, all: bool) -> Sight {
        match self.find(dylib, name) {
            None => Sight::Nothing,
            Some(number) if all || self.definitions[&number].flags.contains(SymbolFlags::EXPORTED) => {
                Sight::Visible(number)
            }
            Some(_) => Sight::Hidden,
        }
    }
}
