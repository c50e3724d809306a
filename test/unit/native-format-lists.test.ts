import assert from 'node:assert/strict';
import { nativeFormatNumbers } from '../../native/index.js';
import { PARTS } from '../../shared/model/expert-parts.js';
import { CHUNK_CODECS, SLICE_READINGS, SPLITS, WEIGHT_FORMATS } from '../../shared/model/tensor-source.js';

describe('the lists that TypeScript and C++ share', () => {
  const lists = {
    formats: WEIGHT_FORMATS,
    splits: SPLITS,
    codecs: CHUNK_CODECS,
    parts: PARTS,
    readings: SLICE_READINGS,
  };
  for (const [list, names] of Object.entries(lists)) {
    it(`TypeScript and C++ have the same ${list} with the same numbers`, () => {
      const numbers = nativeFormatNumbers()[list as keyof typeof lists];
      assert.deepEqual(numbers, Object.fromEntries(names.map((name, number) => [name, number])));
    });
  }
});
