import assert from 'node:assert/strict';
import fc from 'fast-check';
import { LOWER_FETCHES, USUAL_RULES, type Routing } from '../../shared/settings/logical-rules.js';
import { qualityText, readQuality, type Quality } from '../../shared/settings/quality.js';
import type { SlicedSplit } from '../../shared/model/tensor-source.js';

const split = fc.constantFrom<SlicedSplit>('sliced84', 'sliced63', 'sliced42');
/** At most six decimals. */
const share = fc.integer({ min: 1, max: 999_999 }).map((millionths) => millionths / 1e6);

const kept = fc.nat(99);
const lambda = fc.integer({ min: 1, max: 999_999_999 }).map((millionths) => millionths / 1e6);

const routing = fc.oneof(
  fc.constant<Routing>({ kind: 'top-k' }),
  fc.record({ kind: fc.constant('cumulative' as const), mass: share, kept }, { noNullPrototype: true }),
  fc.record({ kind: fc.constant('cache-prior' as const), lambda, kept }, { noNullPrototype: true }),
);

const quality: fc.Arbitrary<Quality> = fc.oneof(
  fc.constant<Quality>({ kind: 'exact' }),
  fc.record({ kind: fc.constantFrom('high' as const, 'low' as const), split }),
  fc.record({ kind: fc.constant('critical' as const), split, share }),
  fc.record({
    kind: fc.constant('cached' as const),
    split,
    cacheBytes: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    missShare: share,
    lowerFetch: fc.constantFrom(...LOWER_FETCHES),
    routing,
  }),
);

describe('the text of a quality', () => {
  it('is read as the quality that it was written from', () => {
    fc.assert(fc.property(quality, (one) => assert.deepEqual(readQuality(qualityText(one)), { quality: { ...one } })));
  });

  it('says which slices are read', () => {
    const read = (text: string): unknown => readQuality(text);
    assert.deepEqual(read('sliced(8,4)'), { quality: { kind: 'high', split: 'sliced84' } });
    assert.deepEqual(read('sliced(6,3,low)'), { quality: { kind: 'low', split: 'sliced63' } });
    assert.deepEqual(read('sliced(4,2,critical=0.30)'), {
      quality: { kind: 'critical', split: 'sliced42', share: 0.3 },
    });
    const cached: Quality = { kind: 'cached', split: 'sliced84', cacheBytes: 1.8e9, missShare: 0.05, ...USUAL_RULES };
    assert.deepEqual(read('sliced(8,4,cached=1.8 GB,miss=0.05)'), { quality: cached });
    assert.equal(qualityText(cached), 'sliced(8,4,cached=1800000000,miss=0.05)');
  });

  it('names the rules of a logical cache that are not the usual ones', () => {
    const again = (rules: string): string => {
      const read = readQuality(`sliced(8,4,cached=1GB,miss=0.05${rules})`);
      return 'quality' in read ? qualityText(read.quality) : read.problem;
    };
    const of = (rules: string): string => `sliced(8,4,cached=1000000000,miss=0.05${rules})`;
    assert.equal(again(',dbsc=wait,routing=top-k'), of(''));
    assert.equal(again(',dbsc=background'), of(',dbsc=background'));
    assert.equal(again(',routing=cumulative(0.90,01)'), of(',routing=cumulative(0.9,1)'));
    const all = ',dbsc=never,routing=cache-prior(0.4,0)';
    assert.equal(again(all), of(all));
  });

  it('is refused with the reason where it is not exactly one of the forms', () => {
    const refused: readonly (readonly [string, RegExp])[] = [
      ['', /^expected exact, sliced\(h,l\)/],
      ['Exact', /^expected exact/],
      ['sliced', /^expected exact/],
      ['sliced()', /^expected exact/],
      ['sliced(8, 4)', /^expected exact/],
      ['sliced(8,4) ', /^expected exact/],
      ['sliced(8,4,)', /^expected exact/],
      ['sliced(8,4,low)x', /^expected exact/],
      ['sliced(8,3)', /^no experts are sliced as \(8,3\)/],
      ['sliced(8,4,high)', /^"high" is not known/],
      ['sliced(8,4,low,low)', /^"low,low" is not known/],
      ['sliced(8,4,critical=0)', /^critical is a share .*for 0 say sliced\(8,4,low\), for 1 sliced\(8,4\)$/],
      ['sliced(8,4,critical=1)', /^critical is a share/],
      ['sliced(8,4,critical=0.0)', /^critical is a share/],
      ['sliced(8,4,critical=30%)', /^critical is a share .* not "30%"/],
      ['sliced(8,4,critical=.3)', /^critical is a share/],
      ['sliced(8,4,critical=0.1234567)', /^critical is a share/],
      ['sliced(8,4,cached=1GB)', /^"cached=1GB" is not known/],
      ['sliced(8,4,cached=0,miss=0.1)', /^cached is a size above 0/],
      ['sliced(8,4,cached=much,miss=0.1)', /^cached is a size above 0.*"much"/],
      ['sliced(8,4,cached=1GB,miss=5)', /^miss is a share .*"5"/],
      ['sliced(8,4,cached=1GB,miss=0.1,)', /^"," is not known; expected dbsc=/],
      ['sliced(8,4,cached=1GB,miss=0.1,dbsc=later)', /^dbsc is wait, background, never, not "later"/],
      [
        'sliced(8,4,cached=1GB,miss=0.1,routing=top-k,dbsc=wait)',
        /^",routing=top-k,dbsc=wait" is not known.*in this order/,
      ],
      ['sliced(8,4,cached=1GB,miss=0.1,routing=top)', /^routing is top-k, .*"top"/],
      ['sliced(8,4,cached=1GB,miss=0.1,routing=cumulative)', /^routing is top-k, .*"cumulative"/],
      ['sliced(8,4,cached=1GB,miss=0.1,routing=cumulative(1,1))', /^routing is .* p is a share/],
      ['sliced(8,4,cached=1GB,miss=0.1,routing=cache-prior(0,1))', /^routing is .* lambda a number above 0/],
      ['sliced(8,4,cached=1GB,miss=0.1,routing=cache-prior(0.4))', /^routing is .*"cache-prior\(0.4\)"/],
      ['sliced(8,4,cached=1GB,miss=0.1,routing=top-k(1,1))', /^routing is /],
      ['sliced(8,4,critical=0.3,dbsc=never)', /^critical is a share/],
    ];
    for (const [text, problem] of refused) {
      const read = readQuality(text);
      assert.match('problem' in read ? read.problem : '', problem, text);
    }
  });
});
