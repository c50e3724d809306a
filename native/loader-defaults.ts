import type { LoaderOptions, LoadRequest, StorageReads } from './addon.d.ts';

/** A loader without entries, for experts that are stored raw. With the sizes of shared/model/part-sizes.ts it loads any experts. */
export const PLAIN_LOADER: LoaderOptions = {
  decompressionThreads: 0,
  directIo: false,
  storageBytesPerS: 0,
  readDepth: 1,
  storageWay: 'auto',
  exponentEntries: 0,
  signMantissaEntries: 0,
  expertExponentBytes: 0,
  expertSignMantissaBytes: 0,
  shardExponentBytes: 0,
  shardSignMantissaBytes: 0,
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

/** Both parts come from storage, and neither is cached. */
export const FROM_STORAGE: LoadRequest = {
  exponents: { from: 'storage', entry: -1 },
  signMantissa: { from: 'storage', entry: -1 },
  order: null,
  urgent: false,
};
