import assert from 'node:assert/strict';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { HeldMain, PROMPT } from './held-main.js';

const LIAR = 'w0';

describe('a sequence of the cluster', () => {
  it('stays unchanged where no empty sequence can be made to replace it', async () => {
    const main = new HeldMain({ hasShadow: false });
    const sequence = main.sequence();
    await sequence.prefill(PROMPT);
    const before = sequence.sequence;
    main.model.createSequence = () => {
      throw new OdmoeError('DEVICE_OUT_OF_MEMORY', 'no memory is left');
    };
    assert.throws(() => sequence.preempt(), { code: 'DEVICE_OUT_OF_MEMORY' });
    assert.deepEqual(main.model.disposed, []);
    assert.equal(sequence.sequence, before);
    await sequence.end();
  });

  it('gives out no logits of a finished pass once its rows must be computed again', async () => {
    const [main, client] = [new HeldMain({ hasShadow: true, draftRows: 3 }), new AbortController()];
    const sequence = main.sequence(client.signal);
    await sequence.prefill(PROMPT);
    const position = PROMPT.length;
    for (const row of [1, 2]) main.draft(position + row, 10 + row, position);
    await sequence.decode(10);
    const { passes } = main;
    await sequence.decode(11);
    assert.equal(main.passes, passes, 'the pass has run the drafts, too');
    sequence.provenance.took(LIAR, 0);
    sequence.distrust(LIAR);
    sequence.computeAnew();
    await sequence.decode(12);
    assert.ok(main.passes > passes, 'all is run again');
    assert.equal(sequence.written, position + 3);
    client.abort();
    await sequence.end();
  });
});
