import assert from 'node:assert/strict';
import fc from 'fast-check';
import { printableJson, printableLine, printableText } from '../../shared/base/text/printable-text.js';

describe('a printable text', () => {
  it('begins no escape sequence: a possible one is made visible', () => {
    assert.equal(
      printableText('a\u001b]0;title\u0007b\u009b2Jc\rd\u0008\u007fe'),
      'a\\x1b]0;title\\x07b\\x9b2Jc\\x0dd\\x08\\x7fe',
    );
  });

  it('contains no change of direction', () => {
    assert.equal(printableText('gpj\u202eexe\u2066x\u2069'), 'gpj\\u202eexe\\u2066x\\u2069');
  });

  it('keeps letters of all scripts, tabs and newlines', () => {
    const text = 'naïve 日本 👩‍👩‍👧 שלום\u200f مرحبا\tx\n';
    assert.equal(printableText(text), text);
    assert.equal(printableText('a\r\nb'), 'a\nb');
  });

  it('contains no terminal control, in any pieces and however often it is cleaned', () => {
    const characters = fc.constantFrom(
      '\u001b',
      '[',
      '2',
      'J',
      '\u009b',
      '\u0000',
      '\u202e',
      'é',
      '\n',
      '\t',
      '🦊',
      '\\',
    );
    fc.assert(
      fc.property(fc.array(fc.string({ unit: characters }), { maxLength: 5 }), (pieces) => {
        const whole = printableText(pieces.join(''));
        assert.equal(pieces.map(printableText).join(''), whole);
        assert.equal(printableText(whole), whole);
        assert.doesNotMatch(whole, /[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/u);
      }),
    );
  });

  it('has one line on request', () => {
    assert.equal(printableLine('refused\nmain  is well\t[OK]'), 'refused\\nmain  is well\\t[OK]');
  });

  it('loses nothing in JSON, and has no control character there', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const json = printableJson({ text });
        assert.deepEqual(JSON.parse(json), { text });
        assert.equal(printableLine(json), json);
      }),
    );
    assert.equal(printableJson('\u009b\u202e'), '"\\u009b\\u202e"');
  });
});
