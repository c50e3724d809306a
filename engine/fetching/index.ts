export { ExpertFetcher, type FetchProgress } from './expert-fetcher.js';
export { fetchManifest } from './fetch-manifest.js';
export { PackPeers } from './pack-peers.js';
export { PackShare } from './pack-share.js';
export { BecameWholeError, fetchPlace, PartialPack, reopenFetch, wasFetched, type FetchPlace } from './partial-pack.js';
