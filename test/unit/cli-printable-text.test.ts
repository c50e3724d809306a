import assert from 'node:assert/strict';
import fc from 'fast-check';
import { printableJson, printableText } from '../../cli/output/printable-text.js';

describe('a model’s text on a terminal', () => {
  it('begins no escape sequence', () => {
    assert.equal(printableText('a\u001b]0;title\u0007b\u009b2Jc\rd\u0008\u007fe'), 'a]0;titleb2Jcde');
  });

  it('keeps letters of all scripts, tabs and newlines', () => {
    const text = 'naïve 日本 🦊 שלום\tx\n';
    assert.equal(printableText(text), text);
  });

  it('loses nothing in JSON, and has no control character there', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const json = printableJson({ text });
        assert.deepEqual(JSON.parse(json), { text });
        assert.equal(printableText(json), json);
        assert.ok(!json.includes('\n') && !json.includes('\t'));
      }),
    );
    assert.equal(printableJson('\u009b'), '"\\u009b"');
  });
});
