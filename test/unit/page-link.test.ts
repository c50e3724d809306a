import assert from 'node:assert/strict';
import fc from 'fast-check';
import { keyOfLink, pageLink } from '../../shared/wire/page-link.js';

describe('the link of the page with a key', () => {
  it('gives the key back, which stands where no server sees it', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, unit: 'binary-ascii' }), (key) => {
        const { hash, pathname, search } = new URL(pageLink('http://127.0.0.1:7680', key));
        assert.deepEqual([pathname, search, keyOfLink(hash)], ['/', '', key]);
      }),
    );
  });

  it('is no link of a view, and none without a key', () => {
    for (const hash of ['', '#', '#chat', '#key', '#key=', '#key=%E0%A4']) assert.equal(keyOfLink(hash), null);
  });
});
