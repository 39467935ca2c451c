//! Task dispatchers of Uruk: the work-stealing pool.
