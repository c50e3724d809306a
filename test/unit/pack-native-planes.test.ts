import assert from 'node:assert/strict';
import fc from 'fast-check';
import { crc32c, joinPlanes, splitPlanes } from '../../native/index.js';
import { refusal } from './tiny-pack.js';
import { referenceCrc32c, referenceMergePlanes, referenceSplitPlanes, type ValueSplit } from './reference-planes.js';

const SPLITS: readonly [ValueSplit, number][] = [
  ['none-bf16', 2],
  ['none-fp16', 2],
  ['none-fp32', 4],
  ['bf16-e8-sm8', 2],
  ['fp16-hi8-lo8', 2],
  ['fp32-e8-sm8-r16', 4],
  ['fp16-e5-lo8-s1m2', 2],
];

describe('native planes and checksums', () => {
  for (const [split, valueBytes] of SPLITS) {
    it(`are those of the pack format for ${split}, at any place in memory`, () => {
      const values = fc
        .uint8Array({ maxLength: 300 })
        .map((bytes) => bytes.subarray(0, bytes.length - (bytes.length % valueBytes)));
      fc.assert(
        fc.property(values, fc.nat({ max: 5 }), (bytes, shift) => {
          const shifted = new Uint8Array(bytes.length + shift).subarray(shift);
          shifted.set(bytes);
          const planes = splitPlanes(shifted, split);
          assert.deepEqual(
            planes.map((plane) => Buffer.from(plane)),
            referenceSplitPlanes(bytes, split).map((plane) => Buffer.from(plane)),
          );
          assert.deepEqual(Buffer.from(referenceMergePlanes(planes, split)), Buffer.from(bytes));
          assert.deepEqual(Buffer.from(joinPlanes(planes, split)), Buffer.from(bytes));
        }),
      );
    });

    it(`keep all 65,536 patterns of two bytes in ${split}`, () => {
      const patterns = new Uint8Array(Uint16Array.from({ length: 65536 }, (_, index) => index).buffer);
      assert.deepEqual(Buffer.from(joinPlanes(splitPlanes(patterns, split), split)), Buffer.from(patterns));
    });
  }

  it('are refused where they do not belong together', () => {
    const plane = (size: number): Uint8Array => new Uint8Array(size);
    for (const planes of [[], [plane(2)], [plane(2), plane(1)], [plane(2), plane(2), plane(2)]]) {
      assert.throws(() => joinPlanes(planes, 'bf16-e8-sm8'), refusal('INTERNAL', /do not belong together/));
    }
    assert.throws(() => joinPlanes([plane(2), plane(2), plane(2)], 'fp32-e8-sm8-r16'), refusal('INTERNAL', /together/));
  });

  it('compute CRC-32C, in one go or in parts', () => {
    assert.equal(crc32c(Buffer.from('123456789'), 0), 0xe3069283);
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.nat({ max: 200 }), (bytes, cut) => {
        const whole = referenceCrc32c(bytes, 0);
        assert.equal(crc32c(bytes, 0), whole);
        assert.equal(crc32c(bytes.subarray(cut), crc32c(bytes.subarray(0, cut), 0)), whole);
      }),
    );
  });
});
