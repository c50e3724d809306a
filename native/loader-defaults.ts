import { perPart } from '../shared/model/expert-parts.js';
import type { LoaderOptions, LoadRequest, StorageReads } from './addon.d.ts';

/** A loader without entries, for experts that are stored raw. With the sizes of shared/model/part-sizes.ts it loads any experts. */
export const PLAIN_LOADER: LoaderOptions = {
  decompressionThreads: 0,
  directIo: false,
  storageBytesPerS: 0,
  readDepth: 1,
  storageWay: 'auto',
  entries: perPart(() => 0),
  expertBytes: perPart(() => 0),
  shardBytes: perPart(() => 0),
  experts: 0,
};

/** The way in which such a loader reads. */
export const ONE_READ_AT_A_TIME: StorageReads = {
  way: 'threads',
  depth: 1,
  direct: false,
  directRefused: false,
  ringRefusal: '',
};

/** All parts come from storage, and none is cached. */
export const FROM_STORAGE: LoadRequest = {
  parts: perPart(() => ({ from: 'storage', entry: -1 })),
  order: null,
  urgent: false,
};
