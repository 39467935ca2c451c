//! Products: the resources that a unit has made, and the rows they serve.
//!
//! A resource that a responsibility registers lies in the tracker of its claim and goes with that. It serves the rows of the claim:
//! they share a *product*, which counts them. When the last of them is removed by name, the product's resources go as well.
//!
//! ```text
//!   row ──▶ Product { rows: 2, newest ─────────┐ }
//!   row ──▶    ▲                               ▼
//!   tracker    └────────  resources  [ 0, gap, 2 ─earlier─▶ 0, 3 ]
//! ```
//!
//! A claim has no product before it registers a resource, or leaves a spare (`spare.rs`); the rows of other units have none. Rows take theirs along
//! wherever they go: from claim to claim, back to a unit, to another tracker. So symbols that were delegated after a resource was
//! registered keep that resource too, because it is unknown which of them it is for.
//!
//! An initializer symbol stands for all the rest of its unit. It goes with the last of the others that is removed by name, at the
//! end of the operation: definitions in a transaction's steps still compete with it.

use smallvec::SmallVec;

use crate::protocol::state::{effects::Effects, payload::Payload};
use crate::protocol::storage::{ClaimId, DylibId, Id, NONE, ProductId, RowId, Slab, TrackerId, UnitId};

use super::{Definitions, claim::Claim};

/// Gaps go when there are more of them than resources, and more than so many. Random histories are short.
const GAPS_MIN: usize = if cfg!(test) { 0 } else { 16 };

/// The resources that the rows of one claim share.
#[derive(Debug)]
pub(super) struct Product {
    /// How many rows it serves.
    pub(super) rows: u32,
    /// Which of them stands for the unit's initialisers.
    initializer: Option<RowId>,
    /// The newest of its resources, by its place in the tracker.
    newest: u32,
}

/// The products of a session.
pub(super) type Products = Slab<ProductId, Product>;

/// The resources of a tracker, in the order in which they were added.
#[derive(Debug)]
pub(crate) struct Resources<R>(Option<Box<ResourcePlaces<R>>>);

#[derive(Debug)]
struct ResourcePlaces<R> {
    places: SmallVec<[ResourcePlace<R>; 1]>,
    /// How many of them are empty.
    gaps: usize,
}

#[derive(Debug)]
struct ResourcePlace<R> {
    resource: Option<R>,
    /// The product it is part of, or `NONE`.
    product: u32,
    /// The place of the next older resource of the product, or `NONE`.
    earlier: u32,
}

impl<R> Default for Resources<R> {
    fn default() -> Self {
        Self(None)
    }
}

impl<R> FromIterator<R> for Resources<R> {
    fn from_iter<I: IntoIterator<Item = R>>(resources: I) -> Self {
        let place = |resource| ResourcePlace { resource: Some(resource), product: NONE, earlier: NONE };
        Self(Some(Box::new(ResourcePlaces { places: resources.into_iter().map(place).collect(), gaps: 0 })))
    }
}

impl<R> Resources<R> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|list| list.places.len() == list.gaps)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &R> {
        self.0.iter().flat_map(|list| &list.places).filter_map(|place| place.resource.as_ref())
    }

    /// Newest last.
    pub(crate) fn into_vec(self) -> Vec<R> {
        let list = self.0.map(|list| list.places);
        list.into_iter().flatten().filter_map(|place| place.resource).collect()
    }

    fn add(&mut self, resource: R, product: u32, products: &mut Products) {
        let list =
            self.0.get_or_insert_with(|| Box::new(ResourcePlaces { places: SmallVec::new(), gaps: 0 }));
        list.places.push(ResourcePlace { resource: Some(resource), product, earlier: NONE });
        list.link(list.places.len() - 1, products);
    }

    /// Adds those of another tracker, which are newer from now on.
    pub(super) fn append(&mut self, moved: &mut Self, products: &mut Products) {
        let Some(mut moved) = moved.0.take() else { return };
        let Some(list) = &mut self.0 else {
            self.0 = Some(moved);
            return;
        };
        let first = list.places.len();
        list.places.append(&mut moved.places);
        list.gaps += moved.gaps;
        list.link_anew(first, products);
    }

    /// Takes out the resource at `newest`, and the older ones of its product. Gives them newest first.
    fn take(&mut self, newest: u32, products: &mut Products) -> SmallVec<[R; 1]> {
        let mut taken = SmallVec::new();
        // Those of a tracker that is removed have been taken along already.
        let Some(list) = &mut self.0 else { return taken };
        let mut at = newest;
        while let Some(place) = list.places.get_mut(at as usize) {
            taken.extend(place.resource.take());
            at = place.earlier;
            list.gaps += 1;
        }
        while list.places.last().is_some_and(|place| place.resource.is_none()) {
            list.places.pop();
            list.gaps -= 1;
        }
        if list.gaps > GAPS_MIN && list.gaps > list.places.len() / 2 {
            list.places.retain(|place| place.resource.is_some());
            list.places.shrink_to_fit();
            list.gaps = 0;
            list.link_anew(0, products);
        }
        taken
    }
}

impl<R> ResourcePlaces<R> {
    /// Makes a resource the newest of its product.
    fn link(&mut self, at: usize, products: &mut Products) {
        let place = &mut self.places[at];
        if place.product != NONE && place.resource.is_some() {
            let at = u32::try_from(at).expect("a tracker has fewer than four billion resources");
            place.earlier = std::mem::replace(&mut products.at_mut(place.product).newest, at);
        }
    }

    /// The places from `first` on are new to their resources. A product has all of its own among them.
    fn link_anew(&mut self, first: usize, products: &mut Products) {
        for place in self.places[first..].iter().filter(|place| place.resource.is_some()) {
            if place.product != NONE {
                products.at_mut(place.product).newest = NONE;
            }
        }
        (first..self.places.len()).for_each(|at| self.link(at, products));
    }
}

/// A unit or product that a removal by name has touched: an initializer symbol may be all that is left of it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ResourceLeft {
    Unit(DylibId, UnitId),
    Product(ProductId),
}

impl<P: Payload> Definitions<P> {
    /// Adds a resource to the tracker. Gives it back if the tracker is defunct.
    pub(in crate::protocol) fn add_resource(
        &mut self,
        tracker: TrackerId,
        resource: P::Resource,
    ) -> Result<(), P::Resource> {
        self.add_resource_of(tracker, NONE, resource)
    }

    /// Adds a resource to the tracker of a claim, for the claim's rows. Gives it back if the tracker is defunct.
    pub(in crate::protocol) fn add_claim_resource(
        &mut self,
        claim: ClaimId,
        resource: P::Resource,
    ) -> Result<(), P::Resource> {
        match self.claims.get(claim).map(Claim::tracker) {
            Some(tracker) if self.tracker_lives(tracker) => {
                let product = self.make_product(claim);
                self.add_resource_of(tracker, product, resource)
            }
            _ => Err(resource),
        }
    }

    fn add_resource_of(
        &mut self,
        tracker: TrackerId,
        product: u32,
        resource: P::Resource,
    ) -> Result<(), P::Resource> {
        if !self.tracker_lives(tracker) {
            return Err(resource);
        }
        self.trackers[tracker].resources.add(resource, product, &mut self.products);
        Ok(())
    }

    /// The product of the claim's rows, or `NONE`.
    pub(super) fn product_of(&self, claim: ClaimId) -> u32 {
        let carries = |row: &&RowId| self.carries(**row, claim);
        let row = self.live_claim(claim).and_then(|claim| claim.rows().iter().find(carries));
        row.map_or(NONE, |&row| self.rows[row].product)
    }

    /// The same, made if there is none yet. A claim without rows has none.
    pub(super) fn make_product(&mut self, claim: ClaimId) -> u32 {
        let known = self.product_of(claim);
        let rows = self.rows_of_claim(claim);
        if known != NONE || rows.is_empty() {
            return known;
        }
        let initializer = rows.iter().copied().find(|&row| self.is_initializer(row));
        let product = self.products.insert(Product { rows: 0, initializer, newest: NONE }).index();
        rows.into_iter().for_each(|row| self.join_product(row, product));
        product
    }

    /// A product serves one more row.
    pub(super) fn join_product(&mut self, row: RowId, product: u32) {
        if product != NONE {
            self.rows[row].product = product;
            self.products.at_mut(product).rows += 1;
        }
    }

    /// A row that has a product is about to go. A resource that served no other row is an orphan, unless it goes with its
    /// tracker.
    pub(super) fn leave_product(&mut self, row: RowId, effects: &mut Effects<P>) {
        let (index, tracker, dylib) = (self.rows[row].product, self.rows[row].tracker, self.rows[row].dylib);
        let product = self.products.at_mut(index);
        product.rows -= 1;
        product.initializer.take_if(|initializer| *initializer == row);
        if product.rows > 0 {
            return;
        }
        let newest = product.newest;
        if !self.tracker_is_removing(tracker) {
            let orphans = self.trackers[tracker].resources.take(newest, &mut self.products);
            self.orphans.extend(orphans.into_iter().rev().map(|resource| (dylib, resource)));
        }
        self.drop_spare(index, effects);
        if let Some(id) = self.products.id_at(index) {
            self.products.discard(id, effects);
        }
    }

    /// Notes what the row belongs to, of which an initializer symbol may be left once the row is removed by name.
    pub(in crate::protocol) fn note_resources(&self, row: RowId, resources_left: &mut Vec<ResourceLeft>) {
        if self.has_initializers() {
            let row = &self.rows[row];
            resources_left.extend(row.unit().map(|unit| ResourceLeft::Unit(row.dylib, unit)));
            resources_left.extend(self.products.id_at(row.product).map(ResourceLeft::Product));
        }
    }

    /// The initializer symbol that is all that is left, if no work on it is under way.
    pub(in crate::protocol) fn is_all_that_is_left(&self, resource_left: ResourceLeft) -> Option<RowId> {
        let left = match resource_left {
            ResourceLeft::Unit(dylib, unit) => self.only_symbol(dylib, unit),
            ResourceLeft::Product(product) => {
                let product = self.products.get(product).filter(|product| product.rows == 1);
                product.and_then(|product| product.initializer)
            }
        };
        left.filter(|&row| self.is_initializer(row) && self.rows[row].claim().is_none())
    }

    /// The resources that serve no row since rows were removed by name, by dylib, newest last.
    pub(in crate::protocol) fn take_orphans(&mut self) -> Vec<(DylibId, P::Resource)> {
        std::mem::take(&mut self.orphans)
    }

    /// How many there are.
    pub(in crate::protocol) fn orphans(&self) -> usize {
        self.orphans.len()
    }

    /// Those that have come when there were so many already.
    pub(in crate::protocol) fn take_orphans_from(&mut self, known: usize) -> Vec<(DylibId, P::Resource)> {
        self.orphans.split_off(known)
    }

    /// The row of a waiting unit's only symbol.
    fn only_symbol(&self, dylib: DylibId, unit: UnitId) -> Option<RowId> {
        let symbols = &self.units.get(unit)?.symbols;
        let name = symbols.keys().next().filter(|_| symbols.len() == 1)?;
        self.find(dylib, name)
    }

    /// Each row's product counts it, and finds its resources where they are.
    #[cfg(any(test, debug_assertions))]
    pub(super) fn check_products(&self) {
        let mut rows = rustc_hash::FxHashMap::<u32, (u32, TrackerId)>::default();
        for (_, row) in self.rows.iter().filter(|(_, row)| row.product != NONE) {
            let (count, tracker) = rows.entry(row.product).or_insert((0, row.tracker));
            *count += 1;
            assert_eq!(*tracker, row.tracker, "a product serves rows of one tracker");
            if let Some(claim) = row.claim() {
                assert_eq!(self.product_of(claim), row.product, "the rows of a claim share their product");
            }
        }
        assert_eq!(rows.len(), self.products.len(), "a product serves rows that are there");
        for (id, product) in self.products.iter() {
            let (count, tracker) = rows[&id.index()];
            assert_eq!(product.rows, count, "a product counts its rows");
            let resources = &self.trackers[tracker].resources;
            let places = resources.0.iter().flat_map(|list| list.places.iter().enumerate());
            let mut own = places.filter(|(_, place)| place.product == id.index() && place.resource.is_some());
            let newest = own.by_ref().fold(NONE, |earlier, (at, place)| {
                assert_eq!(place.earlier, earlier, "resources of a product are linked");
                at as u32
            });
            assert_eq!(product.newest, newest, "a product knows its newest resource");
        }
        assert!(self.orphans.is_empty(), "what serves nobody has been taken out");
    }
}
