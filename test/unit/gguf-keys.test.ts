import assert from 'node:assert/strict';
import fc from 'fast-check';
import { architectureKeys, GgufKeyReader } from '../../packs/gguf/gguf-keys.js';
import type { GgufValue } from '../../packs/gguf/gguf-types.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';

function readerOf(values: Readonly<Record<string, GgufValue>>): GgufKeyReader {
  return architectureKeys(new Map(Object.entries({ 'general.architecture': 'arch', ...values })), 'model.gguf');
}

const corrupt =
  (pattern: RegExp) =>
  (thrown: unknown): boolean =>
    thrown instanceof OdmoeError && thrown.code === 'MODEL_CORRUPT' && pattern.test(thrown.message);

describe('the reader of GGUF keys', () => {
  it('gives each kind of value under the prefix of the architecture', () => {
    const reader = readerOf({ 'arch.n': 3, 'arch.f': 0.5, 'arch.b': false, 'arch.t': '', n: 4 });
    assert.deepEqual([reader.integer('n'), reader.float('f'), reader.flag('b'), reader.text('t')], [3, 0.5, false, '']);
    assert.equal(reader.float('n'), 3);
    assert.equal(reader.under('').integer('n'), 4);
    assert.equal(reader.prefix, 'arch.');
  });

  it('gives the default only for a missing key', () => {
    const reader = readerOf({ 'arch.n': 0, 'arch.f': 0, 'arch.b': false, 'arch.t': '' });
    assert.deepEqual([reader.integerOr(5, 'n'), reader.integerOr(null, 'm')], [0, null]);
    assert.deepEqual([reader.floatOr(5, 'f'), reader.floatOr(2.5, 'g')], [0, 2.5]);
    assert.deepEqual([reader.flagOr(true, 'b'), reader.flagOr(true, 'c')], [false, true]);
    assert.deepEqual([reader.textOr('x', 't'), reader.textOr('x', 'u')], ['', 'x']);
  });

  it('refuses values of another kind, with the file, the key, the value and the wish', () => {
    const reader = readerOf({
      'arch.text': 'x'.repeat(500),
      'arch.nan': NaN,
      'arch.large': 2 ** 31,
      'arch.negative': -1,
      'arch.half': 1.5,
      'arch.one': 1,
      'arch.list': Array.from({ length: 100 }, (_, index) => index),
    });
    assert.throws(
      () => reader.integer('text'),
      corrupt(/^model\.gguf: key "arch\.text": "x{80}"\.\.\., expected a whole/),
    );
    for (const name of ['large', 'negative', 'half', 'nan']) {
      assert.throws(() => reader.integerOr(0, name), corrupt(/expected a whole number from 0 to 2147483647; /));
    }
    assert.throws(() => reader.floatOr(0, 'nan'), corrupt(/"arch\.nan": NaN, expected a finite number/));
    assert.throws(() => reader.flagOr(true, 'one'), corrupt(/"arch\.one": 1, expected true or false/));
    assert.throws(() => reader.textOr('', 'one'), corrupt(/expected a text/));
    assert.throws(() => reader.integer('list'), corrupt(/\[0, 1, 2, 3, 4, 5, 6, 7, \.\.\.\] \(100 values\), expected/));
    assert.throws(() => reader.text('none'), corrupt(/"arch\.none": missing, expected a text/));
    assert.throws(() => architectureKeys(new Map(), 'a'), corrupt(/^a: key "general\.architecture": missing/));
    assert.throws(() => architectureKeys(new Map([['general.architecture', 1]]), 'a'), corrupt(/: 1, expected a text/));
  });

  it('gives a value for each layer from one value or from a list of them', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(), { minLength: 1, maxLength: 9 }), fc.nat({ max: 12 }), (list, layers) => {
        const reader = readerOf({ 'arch.one': list[0] ?? 0, 'arch.list': list });
        assert.deepEqual(reader.integers('one', layers), Array(layers).fill(list[0]));
        if (layers === list.length) assert.deepEqual(reader.integers('list', layers), list);
        else assert.throws(() => reader.integers('list', layers), corrupt(/or a list of them for \d+ layers/));
      }),
    );
    const reader = readerOf({
      'arch.flags': [true, false],
      'arch.floats': [0.5, NaN],
      'arch.mixed': [1, 'a'],
      'arch.one': 1,
    });
    assert.deepEqual(reader.flags('flags', 2), [true, false]);
    assert.throws(() => reader.floats('floats', 2), corrupt(/\[0\.5, NaN\]/));
    assert.throws(() => reader.integers('mixed', 2), corrupt(/\[1, "a"\]/));
    assert.throws(() => reader.integers('none', 2), corrupt(/missing/));
    assert.throws(() => reader.integers('one', 2 ** 31 - 1), corrupt(/2147483647 layers, expected at most/));
  });

  it('lists the keys that were never read', () => {
    const reader = readerOf({ 'arch.a': 1, 'arch.b': 1, 'arch.c': 1, 'other.d': 1 });
    assert.ok(reader.has('b') && !reader.has('z'));
    reader.integerOr(0, 'a');
    reader.integers('c', 1);
    assert.deepEqual(reader.unread(), ['arch.b', 'other.d']);
    reader.under('other.').integer('d');
    assert.deepEqual(reader.unread(), ['arch.b']);
  });
});
