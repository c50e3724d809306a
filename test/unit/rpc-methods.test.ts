import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { loadSync } from '@grpc/proto-loader';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { METHODS } from '../../shared/transport/methods.js';

/** Every file counts, so that a new file which shared/wire/codecs.ts does not load is found, too. */
const FILES = readdirSync(join(packageRoot(), 'proto', 'odmoe', 'v1')).filter((name) => name.endsWith('.proto'));
const PACKAGE = 'odmoe.v1.';

/** "Worker.Serve at /odmoe.v1.Worker/Serve: bidirectional" for each rpc, sorted. */
function rpcsOfTheProtoFiles(): string[] {
  const includeDirs = [join(packageRoot(), 'proto')];
  const definitions = loadSync(
    FILES.map((name) => `odmoe/v1/${name}`),
    { includeDirs },
  );
  const rpcs = Object.entries(definitions).flatMap(([name, service]) =>
    'format' in service
      ? []
      : Object.entries(service).map(([rpc, { path, requestStream, responseStream }]) => {
          const kind = kindOf(requestStream, responseStream);
          return `${name.slice(PACKAGE.length)}.${rpc} at ${path}: ${kind}`;
        }),
  );
  return rpcs.sort();
}

function kindOf(requestStream: boolean, responseStream: boolean): string {
  if (requestStream) return responseStream ? 'bidirectional' : 'client stream';
  return responseStream ? 'server stream' : 'unary';
}

const KINDS = { stream: 'bidirectional', replies: 'server stream', call: 'unary' } as const;

interface Placed {
  path: string;
  shape: keyof typeof KINDS;
}

function methodsOfTheTable(): string[] {
  const methods = Object.entries(METHODS).flatMap(([service, ofService]) =>
    Object.entries<Placed>(ofService).map(
      ([name, { path, shape }]) => `${capital(service)}.${capital(name)} at ${path}: ${KINDS[shape]}`,
    ),
  );
  return methods.sort();
}

function capital(name: string): string {
  return name.charAt(0).toUpperCase() + name.slice(1);
}

describe('the table of methods and the proto files', () => {
  it('have at least one rpc of each kind that odmoe uses', () => {
    const rpcs = rpcsOfTheProtoFiles();
    for (const kind of Object.values(KINDS))
      assert.ok(
        rpcs.some((rpc) => rpc.endsWith(kind)),
        `no rpc is ${kind}`,
      );
  });

  it('every rpc of the proto files stands in the table of methods, under its name and with its kind', () => {
    const methods = new Set(methodsOfTheTable());
    const missing = rpcsOfTheProtoFiles().filter((rpc) => !methods.has(rpc));
    assert.deepEqual(missing, [], 'shared/transport/methods.ts lacks these rpcs, or has them otherwise');
  });

  it('every method of the table is an rpc of the proto files, of the same name and kind', () => {
    const rpcs = new Set(rpcsOfTheProtoFiles());
    const unknown = methodsOfTheTable().filter((method) => !rpcs.has(method));
    assert.deepEqual(unknown, [], 'proto/odmoe/v1 lacks these methods, or has them otherwise');
  });
});
