import assert from 'node:assert/strict';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { callRefusal, identityRefusal, servedWorkerRefusal } from '../../shared/transport/call-permission.js';
import { METHODS } from '../../shared/transport/methods.js';
import type { RpcServerOptions } from '../../shared/transport/transport.js';
import type { CertifiedCaller, PeerRole } from '../../shared/transport/trust/peer-role.js';
import { plainIdentity } from './plain-identity.js';
import { memoryWorld, type TransportWorld } from './transport-worlds.js';
import { plainRequest } from './wire-messages.js';

const NETWORK = { keepaliveIntervalMs: 500, keepaliveTimeoutMs: 700, executeTimeoutMs: 1000, reconnectDelayMs: 100 };
const SILENT: Logger = { error: () => undefined, warn: () => undefined, info: () => undefined, debug: () => undefined };
const ROLES: readonly PeerRole[] = ['main', 'shadow', 'worker', 'operator'];

/** Roles that may call a method, as docs/security.md promises; written again here, so that a slip in the table of methods is noticed. */
const ALLOWED: Record<string, readonly PeerRole[]> = {
  'node.identify': ROLES,
  'node.counts': ['main', 'operator'],
  'worker.serve': ['main', 'shadow'],
  'shadow.serve': ['main'],
  'cluster.join': ['shadow', 'worker'],
  'cluster.status': ROLES,
  'keys.renew': ['shadow', 'worker', 'operator'],
  'operator.accept': ['main', 'operator'],
  'operator.createToken': ['main', 'operator'],
  'operator.listTokens': ['main', 'operator'],
  'operator.revokeToken': ['main', 'operator'],
  'operator.listNodes': ['main', 'operator'],
  'operator.removeNode': ['main', 'operator'],
  'inference.generate': ['main', 'operator'],
  'pack.describe': ['main', 'shadow', 'worker'],
  'pack.manifest': ['main', 'shadow', 'worker'],
  'pack.read': ['main', 'shadow', 'worker'],
};

const REQUESTS: Record<string, object> = {
  'cluster.join': { identity: plainIdentity() },
  'keys.renew': { spki: Buffer.from('k'), proof: Buffer.from('p') },
  'operator.accept': { code: '482913' },
  'operator.createToken': { role: 'worker', name: '', uses: 1, lifeMs: 1000 },
  'operator.revokeToken': { id: 'i' },
  'operator.removeNode': { id: 'i' },
  'inference.generate': plainRequest(),
  'pack.manifest': { packDigest: 'd' },
  'pack.read': { packDigest: 'd', file: 'f', offsetBytes: 0, lengthBytes: 8 },
};

/** The error of each handler below: who gets it was allowed to call. */
const REACHED = new OdmoeError('QUEUE_FULL', 'the handler was reached');

function handlers(): Omit<RpcServerOptions, 'host' | 'port' | 'network' | 'log'> {
  const refuse = (): never => {
    throw REACHED;
  };
  const refuseReplies = async function* (): AsyncGenerator<never> {
    yield await Promise.reject(REACHED);
  };
  return {
    node: { identify: refuse, counts: refuse },
    worker: { serve: (stream) => stream.close(REACHED) },
    shadow: { serve: (stream) => stream.close(REACHED) },
    cluster: { join: refuse, status: refuse },
    keys: { renew: refuse },
    operator: {
      accept: refuse,
      createToken: refuse,
      listTokens: refuse,
      revokeToken: refuse,
      listNodes: refuse,
      removeNode: refuse,
    },
    inference: { generate: refuseReplies },
    pack: { describe: refuse, manifest: refuseReplies, read: refuseReplies },
  };
}

type Table = typeof METHODS;
type AnyMethod = { [Service in keyof Table]: Table[Service][keyof Table[Service]] }[keyof Table];

async function codeOf(
  { client }: TransportWorld,
  address: string,
  name: string,
  method: AnyMethod,
): Promise<ErrorCode | null> {
  const request = REQUESTS[name] ?? {};
  if (method.shape === 'stream') {
    const stream = client.stream(address, method as typeof METHODS.worker.serve, NETWORK);
    return new Promise((resolve) => stream.onClose((error) => resolve(error?.code ?? null)));
  }
  const asked =
    method.shape === 'call'
      ? client.call(address, method as typeof METHODS.cluster.join, request as never, { timeoutMs: 2000 })
      : client.replies(address, method as typeof METHODS.pack.read, request as never, {}).next();
  return asked.then(
    () => null,
    (thrown: unknown) => toOdmoeError(thrown).code,
  );
}

function everyMethod(): [string, AnyMethod][] {
  return Object.entries(METHODS).flatMap(([service, methods]) =>
    Object.entries(methods).map(([name, method]): [string, AnyMethod] => [`${service}.${name}`, method as AnyMethod]),
  );
}

async function reachedBy(caller: CertifiedCaller | null): Promise<string[]> {
  const reached: string[] = [];
  for (const [name, method] of everyMethod()) {
    const { servedBy } = method;
    const world = memoryWorld(caller, servedBy === 'any node' ? 'main' : servedBy);
    const options = { host: world.host, port: 0, network: NETWORK, log: SILENT, ...handlers() };
    const server = await world.server.serve(options);
    let code: ErrorCode | null | undefined;
    void codeOf(world, server.address, name, method).then((got) => (code = got));
    await world.until(() => code !== undefined);
    if (code === REACHED.code) reached.push(name);
    else assert.equal(code, 'NOT_ALLOWED', name);
  }
  return reached.sort();
}

describe('call permission', () => {
  for (const role of ROLES) {
    it(`lets a ${role} call its methods and no others`, async () => {
      const allowed = Object.keys(ALLOWED).filter((name) => ALLOWED[name]?.includes(role));
      assert.deepEqual(await reachedBy({ cluster: 'test', role, id: 'x' }), allowed.sort());
    });
  }

  it('lets everybody call everything in a cluster without an authority', async () => {
    assert.deepEqual(await reachedBy(null), Object.keys(ALLOWED).sort());
  });

  it('names the role of the caller and the roles that may call', () => {
    const { serve } = METHODS.shadow;
    const refusal = callRefusal(serve, { caller: { cluster: 'test', role: 'worker', id: 'jetson-2' } });
    assert.equal(
      refusal?.message,
      'worker "jetson-2" may not call /odmoe.v1.Shadow/Serve: its certificate must be of role main',
    );
  });

  it('refuses an identity whose id, role or cluster differs from the certificate', () => {
    const caller: CertifiedCaller = { cluster: 'test', role: 'worker', id: 'worker-1' };
    assert.equal(identityRefusal(plainIdentity(), { caller }), null);
    assert.equal(identityRefusal(plainIdentity({ id: 'other' }), { caller: null }), null);
    const differing = [
      { id: 'other' },
      { role: 'ROLE_MAIN' },
      { role: 'ROLE_UNSPECIFIED' },
      { cluster: 'work' },
    ] as const;
    for (const stated of differing) {
      const refusal = identityRefusal(plainIdentity(stated), { caller });
      assert.equal(refusal?.code, 'NOT_ALLOWED');
      assert.match(refusal.message, new RegExp(`states the ${Object.keys(stated)[0]} `));
    }
  });

  it('takes as a worker the worker of that id, and main for its own worker', () => {
    const certified = (role: PeerRole, id: string): CertifiedCaller => ({ cluster: 'test', role, id });
    assert.equal(servedWorkerRefusal('jetson-2', certified('worker', 'jetson-2')), null);
    assert.equal(servedWorkerRefusal('box-worker', certified('main', 'box')), null);
    assert.equal(servedWorkerRefusal('jetson-2', null), null);
    assert.equal(servedWorkerRefusal('jetson-2', certified('worker', 'jetson-3'))?.code, 'NOT_ALLOWED');
  });
});
