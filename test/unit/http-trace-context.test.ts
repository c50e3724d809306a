import assert from 'node:assert/strict';
import fc from 'fast-check';
import { parseTraceparent } from '../../http-api/requests/request-record.js';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';
const VALID = `00-${TRACE}-${SPAN}-01`;

describe('the HTTP header traceparent', () => {
  it('gives the ids of trace and span', () => {
    assert.deepEqual(parseTraceparent(VALID), { traceId: TRACE, spanId: SPAN });
    assert.deepEqual(parseTraceparent(`cc-${TRACE}-${SPAN}-00`), { traceId: TRACE, spanId: SPAN });
    assert.deepEqual(parseTraceparent(`cc-${TRACE}-${SPAN}-00-what-comes-later`), { traceId: TRACE, spanId: SPAN });
  });

  for (const [what, header] of [
    ['nothing', undefined],
    ['an empty text', ''],
    ['two headers', [VALID, VALID]],
    ['two headers in one', `${VALID}, ${VALID}`],
    ['the version that is forbidden', `ff-${TRACE}-${SPAN}-01`],
    ['a first version with more behind it', `${VALID}-01`],
    ['capital letters', VALID.toUpperCase()],
    ['a trace of zeros', `00-${'0'.repeat(32)}-${SPAN}-01`],
    ['a span of zeros', `00-${TRACE}-${'0'.repeat(16)}-01`],
    ['a trace that is too short', `00-${TRACE.slice(1)}-${SPAN}-01`],
    ['other characters', `00-${TRACE}-${SPAN.slice(1)}g-01`],
    ['a line break', `${VALID}\n`],
    ['more than a header should hold', `cc-${TRACE}-${SPAN}-00-${'x'.repeat(1000)}`],
  ] as const) {
    it(`is ignored where it is ${what}`, () => {
      assert.equal(parseTraceparent(header as string | string[] | undefined), null);
    });
  }

  it('gives nothing but hexadecimal digits of the right length', () => {
    const hex = (length: number): fc.Arbitrary<string> =>
      fc.stringMatching(new RegExp(`^[0-9a-fA-F]{${length - 1},${length}}$`));
    const header = fc.tuple(hex(2), hex(32), hex(16), hex(2)).map((parts) => parts.join('-'));
    fc.assert(
      fc.property(fc.oneof(header, fc.string()), (text) => {
        const parsed = parseTraceparent(text);
        if (parsed === null) return;
        assert.match(parsed.traceId, /^[0-9a-f]{32}$/);
        assert.match(parsed.spanId, /^[0-9a-f]{16}$/);
        assert.ok(text.startsWith(`${text.slice(0, 2)}-${parsed.traceId}-${parsed.spanId}-`));
      }),
    );
  });
});
