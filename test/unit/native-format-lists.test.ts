import assert from 'node:assert/strict';
import { nativeFormatNumbers } from '../../native/index.js';
import { PARTS } from '../../shared/model/expert-parts.js';
import { BLOCK_FORMATS } from '../../shared/model/block-formats.js';
import { CHUNK_CODECS, SLICE_READINGS, SPLITS, WEIGHT_FORMATS } from '../../shared/model/tensor-source.js';

/** Block formats have the same numbers as formats and as splits. */
const FIRST_BLOCK = 32;
const SHIPPED = 255;

describe('the lists that TypeScript and C++ share', () => {
  const lists: Record<'formats' | 'splits' | 'codecs' | 'parts' | 'readings', readonly string[]> = {
    formats: WEIGHT_FORMATS,
    splits: SPLITS,
    codecs: CHUNK_CODECS,
    parts: PARTS,
    readings: SLICE_READINGS,
  };
  for (const [list, names] of Object.entries(lists)) {
    it(`TypeScript and C++ have the same ${list} with the same numbers`, () => {
      const numbers = nativeFormatNumbers()[list as keyof typeof lists];
      const first = names.indexOf(BLOCK_FORMATS[0]);
      const numberOf = (index: number): number => (first >= 0 && index >= first ? index - first + FIRST_BLOCK : index);
      const expected = Object.fromEntries(
        names.map((name, index) => [name, name === 'shipped' ? SHIPPED : numberOf(index)]),
      );
      assert.deepEqual(numbers, expected);
    });
  }
});
