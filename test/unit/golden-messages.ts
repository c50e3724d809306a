/**
 * Messages of the wire as a release of odmoe wrote them: test/fixtures/wire/RELEASE/SERVICE.json holds, for each message, its values and its
 * bytes. People write the values; record.mjs beside them writes the bytes.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { MessageCodec } from '../../shared/wire/codecs.js';
import { METHODS } from '../../shared/transport/methods.js';

/** JSON with bytes as {"hex": "00ff"}. */
export type JsonValue = null | boolean | number | string | JsonValue[] | { [name: string]: JsonValue };

export interface GoldenMessage {
  /** Name of the message in the .proto files. */
  message: string;
  json: JsonValue;
  base64: string;
}

export const GOLDEN_SERVICES = [
  'worker',
  'shadow',
  'node',
  'cluster',
  'inference',
  'pack',
  'operator',
  'keys',
] as const;

/** Codecs of the messages that are sent by themselves, by their names in the .proto files. */
const CODECS_BY_MESSAGE = {
  WorkerRequest: METHODS.worker.serve.request,
  WorkerReply: METHODS.worker.serve.reply,
  ShadowRequest: METHODS.shadow.serve.request,
  ShadowReply: METHODS.shadow.serve.reply,
  IdentifyRequest: METHODS.node.identify.request,
  NodeIdentity: METHODS.node.identify.reply,
  CountsRequest: METHODS.node.counts.request,
  CountsReply: METHODS.node.counts.reply,
  JoinRequest: METHODS.cluster.join.request,
  JoinReply: METHODS.cluster.join.reply,
  StatusRequest: METHODS.cluster.status.request,
  StatusReply: METHODS.cluster.status.reply,
  RenewRequest: METHODS.keys.renew.request,
  RenewReply: METHODS.keys.renew.reply,
  AcceptRequest: METHODS.operator.accept.request,
  AcceptReply: METHODS.operator.accept.reply,
  CreateTokenRequest: METHODS.operator.createToken.request,
  CreateTokenReply: METHODS.operator.createToken.reply,
  ListTokensRequest: METHODS.operator.listTokens.request,
  ListTokensReply: METHODS.operator.listTokens.reply,
  RevokeTokenRequest: METHODS.operator.revokeToken.request,
  RevokeTokenReply: METHODS.operator.revokeToken.reply,
  ListNodesRequest: METHODS.operator.listNodes.request,
  ListNodesReply: METHODS.operator.listNodes.reply,
  RemoveNodeRequest: METHODS.operator.removeNode.request,
  RemoveNodeReply: METHODS.operator.removeNode.reply,
  DrainRequest: METHODS.operator.drain.request,
  DrainReply: METHODS.operator.drain.reply,
  GenerateRequest: METHODS.inference.generate.request,
  GenerateReply: METHODS.inference.generate.reply,
  DescribePackRequest: METHODS.pack.describe.request,
  PackDescription: METHODS.pack.describe.reply,
  ReadManifestRequest: METHODS.pack.manifest.request,
  PackPiece: METHODS.pack.manifest.reply,
  ReadPackRequest: METHODS.pack.read.request,
} as const;

export const WIRE_CODECS = Object.entries(CODECS_BY_MESSAGE) as readonly [string, MessageCodec<unknown>][];

export function codecOf(message: string): MessageCodec<unknown> {
  const found = WIRE_CODECS.find(([name]) => name === message);
  if (found === undefined) throw new Error(`no codec is known here for ${message}`);
  return found[1];
}

const wireFolder = join(packageRoot(), 'test', 'fixtures', 'wire');

/** Releases with recorded messages, oldest first. */
export function recordedReleases(): string[] {
  const folders = readdirSync(wireFolder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  return folders.map(({ name }) => name).sort((one, other) => minorOf(one) - minorOf(other));
}

function minorOf(release: string): number {
  return Number(release.split('.')[1]);
}

export function goldenMessages(release: string): GoldenMessage[] {
  return GOLDEN_SERVICES.flatMap((service) => readService(release, service));
}

/** Empty for a service that the release did not have. */
function readService(release: string, service: string): GoldenMessage[] {
  const path = join(wireFolder, release, `${service}.json`);
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as GoldenMessage[]) : [];
}

/** Writes the bytes of the release's messages again, from their values. A release that is not there yet begins with those of the last one. */
export function recordRelease(release: string): void {
  const known = recordedReleases();
  const source = known.includes(release) ? release : known.at(-1);
  if (source === undefined) throw new Error(`${wireFolder} has no release to begin with`);
  mkdirSync(join(wireFolder, release), { recursive: true });
  for (const service of GOLDEN_SERVICES) {
    const messages = readService(source, service).map(({ message, json }) => {
      const base64 = codecOf(message).encode(fromJson(json)).toString('base64');
      return { message, json, base64 };
    });
    writeFileSync(join(wireFolder, release, `${service}.json`), `${JSON.stringify(messages, null, 1)}\n`);
  }
}

/** The value that a codec encodes, from JSON. */
export function fromJson(json: JsonValue): unknown {
  if (Array.isArray(json)) return json.map(fromJson);
  if (json === null || typeof json !== 'object') return json;
  if (typeof json.hex === 'string') return Buffer.from(json.hex, 'hex');
  return Object.fromEntries(Object.entries(json).map(([name, value]) => [name, fromJson(value)]));
}

/** The JSON of a value that a codec decoded. */
export function toJson(value: unknown): JsonValue {
  if (value instanceof Uint8Array) return { hex: Buffer.from(value).toString('hex') };
  if (Array.isArray(value)) return value.map(toJson);
  if (value === null || typeof value !== 'object') return value as JsonValue;
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, toJson(field)]));
}
