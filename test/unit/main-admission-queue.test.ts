import assert from 'node:assert/strict';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { AdmissionQueue, admissionOrder } from '../../main-node/rpc/admission-queue.js';

const never = new AbortController().signal;

describe('main: the admission queue', () => {
  it('admits requests in the order of arrival as places become free', async () => {
    const queue = new AdmissionQueue(1, 8);
    const admitted: number[] = [];
    await queue.enter('', never);
    const waits = [1, 2, 3].map((id) => queue.enter('', never).then(() => admitted.push(id)));
    assert.deepEqual([queue.active, queue.queued], [1, 3]);
    for (const wait of waits) {
      queue.leave('');
      await wait;
    }
    assert.deepEqual(admitted, [1, 2, 3]);
    queue.leave('');
    assert.deepEqual([queue.active, queue.queued], [0, 0]);
  });

  it('admits as far as memory has room, without overtaking, and always admits one', async () => {
    let free = 100;
    const queue = new AdmissionQueue(8, 8, (promptTokens) => promptTokens <= free);
    const admitted: number[] = [];
    const ask = (id: number, promptTokens: number): Promise<unknown> =>
      queue.enter('', never, undefined, promptTokens).then(() => admitted.push(id));
    await ask(0, 1000);
    free = 0;
    const waits = [ask(1, 60), ask(2, 50), ask(3, 40), ask(4, 1)];
    free = 100;
    queue.leave('');
    await Promise.all(waits.slice(0, 1));
    assert.deepEqual([admitted, queue.queued], [[0, 1], 3]);
    queue.leave('');
    await Promise.all(waits);
    assert.deepEqual(admitted, [0, 1, 2, 3, 4]);
  });

  it('refuses requests beyond the bound with QUEUE_FULL', async () => {
    const queue = new AdmissionQueue(1, 1);
    await queue.enter('', never);
    const waiting = queue.enter('', never);
    await assert.rejects(queue.enter('', never), { code: 'QUEUE_FULL' });
    queue.leave('');
    await waiting;
  });

  it('takes the newest place of a client that fills the queue for one that has fewer, and tells it so', async () => {
    const queue = new AdmissionQueue(1, 3);
    const admitted: string[] = [];
    const ask = (client: string, name: string): Promise<void> =>
      queue.enter(client, never).then(() => void admitted.push(name));
    await ask('flood', 'flood 0');
    const flood = [1, 2, 3].map((number) => ask('flood', `flood ${number}`));
    const [, second, third] = flood.map((wait) => wait.then(() => null, toOdmoeError));
    await assert.rejects(ask('flood', 'flood 4'), { code: 'QUEUE_FULL', message: /1 requests run and 3 wait/ });
    const anna = ask('anna', 'anna 1');
    const ended = await third;
    assert.equal(ended?.code, 'QUEUE_FULL');
    assert.match(ended.message, /this client has 3 of the 3 requests that may wait, and another client/);
    // Two of the flood and one of anna wait: nobody has too many.
    await assert.rejects(ask('anna', 'anna 2'), { code: 'QUEUE_FULL' });
    assert.equal(queue.queued, 3);
    const bert = ask('bert', 'bert 1');
    assert.equal((await second)?.code, 'QUEUE_FULL');
    for (const client of ['flood', 'flood', 'anna', 'bert']) {
      queue.leave(client);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all([anna, bert, flood[0]]);
    assert.deepEqual(admitted, ['flood 0', 'flood 1', 'anna 1', 'bert 1']);
    assert.deepEqual([queue.active, queue.queued], [0, 0]);
  });

  it('keeps waiting requests when a running one is aborted', async () => {
    const queue = new AdmissionQueue(1, 8);
    await queue.enter('', never);
    const first = new AbortController();
    const admitted = queue.enter('', first.signal);
    queue.leave('');
    await admitted;
    const waiting = queue.enter('', never);
    first.abort();
    assert.equal(queue.queued, 1);
    queue.leave('');
    await waiting;
    assert.deepEqual([queue.active, queue.queued], [1, 0]);
  });

  it('holds as many requests as may wait and not one more', async () => {
    const queue = new AdmissionQueue(2, 2);
    await Promise.all([queue.enter('', never), queue.enter('', never)]);
    const waits = [queue.enter('', never), queue.enter('', never)];
    await assert.rejects(queue.enter('', never), { code: 'QUEUE_FULL', message: /2 requests run and 2 wait/ });
    queue.leave('');
    queue.leave('');
    await Promise.all(waits);
  });

  it('forgets a request that is cancelled while it waits', async () => {
    const queue = new AdmissionQueue(1, 2);
    await queue.enter('', never);
    const gone = new AbortController();
    const cancelled = queue.enter('', gone.signal);
    const patient = queue.enter('', never);
    gone.abort();
    await assert.rejects(cancelled, { code: 'CANCELLED' });
    assert.equal(queue.queued, 1);
    queue.leave('');
    await patient;
    await assert.rejects(queue.enter('', gone.signal), { code: 'CANCELLED' });
  });

  it('lets waiting requests in when a large one before them is cancelled, and reports their places', async () => {
    const queue = new AdmissionQueue(8, 8, (promptTokens) => promptTokens <= 100);
    const admitted: number[] = [];
    const places: number[] = [];
    await queue.enter('', never);
    const large = new AbortController();
    const gone = queue.enter('', large.signal, undefined, 1000);
    const waits = [60, 40, 90].map((promptTokens, id) =>
      queue.enter('', never, (before) => (places[id] = before), promptTokens).then(() => admitted.push(id)),
    );
    assert.deepEqual([queue.active, places], [1, [1, 2, 3]]);
    large.abort();
    await assert.rejects(gone, { code: 'CANCELLED' });
    assert.deepEqual([admitted, queue.active, places[2]], [[0, 1], 3, 0]);
    queue.leave('');
    await Promise.all(waits);
    assert.deepEqual([queue.active, queue.queued], [3, 0]);
  });

  it('admits the client with the fewest running requests next, and reports places in that order', async () => {
    const queue = new AdmissionQueue(2, 8);
    const admitted: string[] = [];
    const places: number[] = [];
    await Promise.all([queue.enter('many', never), queue.enter('many', never)]);
    const waits = ['many', 'many', 'one'].map((client, index) =>
      queue.enter(client, never, (before) => (places[index] = before)).then(() => admitted.push(`${client} ${index}`)),
    );
    assert.deepEqual(places, [1, 2, 0]);
    const reports: number[][] = [];
    for (const leaver of ['many', 'many', 'one']) {
      queue.leave(leaver);
      reports.push(places.slice(0, 2));
      await Promise.resolve();
    }
    await Promise.all(waits);
    assert.deepEqual(reports, [
      [0, 1],
      [0, 0],
      [0, 0],
    ]);
    assert.deepEqual(admitted, ['one 2', 'many 0', 'many 1']);
  });

  it('orders equal clients by their arrival', () => {
    const waiting = ['a', 'a', 'b', 'c', 'b'].map((client, id) => ({ client, id }));
    const ids = (running: [string, number][]): number[] =>
      admissionOrder(waiting, new Map(running)).map(({ id }) => id);
    assert.deepEqual(ids([]), [0, 2, 3, 1, 4]);
    assert.deepEqual(ids([['a', 2]]), [2, 3, 4, 0, 1]);
  });
});
