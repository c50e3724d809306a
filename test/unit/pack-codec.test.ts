import assert from 'node:assert/strict';
import fc from 'fast-check';
import { CODEC_LEVELS, codecSetting, describeCodec, levelProblem, PACK_CODECS } from '../../packs/format/pack-codec.js';
import { blockRows } from '../../packs/format/pack-layout.js';
import { refusal } from './tiny-pack.js';

describe('the codec option of a pack', () => {
  it('has a name, and the usual level unless another is given', () => {
    assert.deepEqual(codecSetting('huffman', null), { codec: 'huffman', level: null });
    assert.deepEqual(codecSetting('zstd', null), { codec: 'zstd', level: CODEC_LEVELS.zstd?.usual });
    assert.deepEqual(codecSetting('lz4hc', 12), { codec: 'lz4hc', level: 12 });
    assert.equal(describeCodec({ codec: 'zstd', level: 3 }), 'zstd level 3');
    assert.equal(describeCodec({ codec: 'fixed4', level: null }), 'fixed4');
  });

  it('is refused for an unknown name, and for packed3 on exponents', () => {
    for (const name of ['zip', 'packed3', 'auto', '', '__proto__']) {
      assert.throws(() => codecSetting(name, null), refusal('USAGE', /is not known; known: raw, zstd, lz4hc/));
    }
  });

  it('is refused at a level that the codec lacks', () => {
    for (const codec of PACK_CODECS) {
      const range = CODEC_LEVELS[codec];
      if (range === null) {
        assert.throws(() => codecSetting(codec, 1), refusal('USAGE', /level 1: the codec \w+ has no levels/));
        assert.equal(levelProblem({ codec, level: null }), null);
        continue;
      }
      for (const level of [range.lowest, range.highest]) assert.equal(codecSetting(codec, level).level, level);
      for (const level of [range.lowest - 1, range.highest + 1, 1.5, NaN]) {
        assert.throws(() => codecSetting(codec, level), refusal('USAGE', /expected a level of/));
      }
      assert.notEqual(levelProblem({ codec, level: null }), null);
    }
  });
});

describe('the blocks of a coded chunk', () => {
  it('are whole groups of rows near 128 KiB', () => {
    assert.equal(blockRows(14336, 4096), 32);
    assert.equal(blockRows(4096, 14336), 16);
    assert.equal(blockRows(1024, 256), 512);
    assert.equal(blockRows(20, 16), 20);
    assert.equal(blockRows(3, 1_000_000), 3);
    assert.equal(blockRows(1_000_000, 1), 128 * 1024);
  });

  it('never exceed the tensor or 16 MiB', () => {
    const size = fc.integer({ min: 1, max: 16 * 1024 * 1024 });
    fc.assert(
      fc.property(size, size, (rows, columns) => {
        const block = blockRows(rows, columns);
        assert.ok(block >= 1 && block <= rows && block * columns <= 16 * 1024 * 1024);
        if (block < rows && 16 * columns <= 16 * 1024 * 1024) assert.equal(block % 16, 0);
      }),
    );
  });
});
