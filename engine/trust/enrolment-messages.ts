/** The messages by which a machine asks main to be let in: JSON over HTTP/1.1, with bytes in base 64. */
import { z } from 'zod';
import type { ErrorCode } from '../../shared/base/errors/registry.js';
import { ENROLMENT_REPLY_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { PEER_ROLES } from '../../shared/transport/trust/peer-role.js';

/** The routes of main's door. */
export const ENROLMENT_PATHS = {
  /** GET: the authority's certificate. */
  authority: '/v1/authority',
  /** POST: join by a token. */
  join: '/v1/join',
  /** POST: begin to pair. */
  pair: '/v1/pair',
  /** POST: reveal the nonce and the key, on the same connection. */
  reveal: '/v1/pair/reveal',
  /** POST: wait until the operator has typed the code. */
  wait: '/v1/pair/wait',
  /** POST: wait no more. */
  withdraw: '/v1/pair/withdraw',
} as const;

const CERTIFICATE_LIMIT_BYTES = 4096;
const KEY_LIMIT_BYTES = 512;
const NONCE_LIMIT_BYTES = 64;
const TEXT_LIMIT = 100;
const ERROR_LIMIT = 2000;

function bytes(limitBytes: number): z.ZodType<Buffer, string> {
  return z
    .base64()
    .max(Math.ceil(limitBytes / 3) * 4)
    .transform((text) => Buffer.from(text, 'base64'));
}

const ID = z.string().max(TEXT_LIMIT);
const ROLE = z.enum(PEER_ROLES);
const PAIRING_ID = z.string().regex(/^[0-9a-f]{32}$/);

export const joinRequestSchema = z.strictObject({
  tokenId: z.string().regex(/^[a-z2-7]{8}$/),
  secret: z.string().max(TEXT_LIMIT),
  spki: bytes(KEY_LIMIT_BYTES),
  id: ID,
  role: ROLE,
  proof: bytes(KEY_LIMIT_BYTES),
});

export const pairRequestSchema = z.strictObject({
  commitment: bytes(NONCE_LIMIT_BYTES),
  id: ID,
  role: ROLE,
  /** For the operator's eyes, so it holds nothing that moves a cursor. */
  device: z
    .string()
    .max(TEXT_LIMIT)
    .regex(/^[\x20-\x7e]*$/),
});

export const revealRequestSchema = z.strictObject({
  pairingId: PAIRING_ID,
  nonce: bytes(NONCE_LIMIT_BYTES),
  spki: bytes(KEY_LIMIT_BYTES),
  proof: bytes(KEY_LIMIT_BYTES),
});

export const waitRequestSchema = z.strictObject({ pairingId: PAIRING_ID });

export const withdrawRequestSchema = waitRequestSchema;

export const authorityReplySchema = z.object({ authority: bytes(CERTIFICATE_LIMIT_BYTES) });

export const pairReplySchema = z.object({
  pairingId: PAIRING_ID,
  nonce: bytes(NONCE_LIMIT_BYTES),
  authority: bytes(CERTIFICATE_LIMIT_BYTES),
});

/** Main's reply to a machine that is let in. */
export const welcomeSchema = z.object({
  state: z.literal('joined'),
  cluster: z.string().max(TEXT_LIMIT),
  authority: bytes(CERTIFICATE_LIMIT_BYTES),
  certificate: bytes(CERTIFICATE_LIMIT_BYTES),
  /** The signed bytes of the newest roster. */
  roster: bytes(ENROLMENT_REPLY_LIMIT_BYTES),
});

export const withdrawReplySchema = z.object({ state: z.literal('withdrawn') });

/** Main's reply to a machine that reveals, too: one whose key is in the cluster already is let in at once. */
export const waitReplySchema = z.discriminatedUnion('state', [
  z.object({ state: z.literal('waiting') }),
  welcomeSchema,
]);

/** Codes of replies that tell a machine of a fault of main itself: the words are in main's log. */
export const MAIN_FAULTS: ReadonlySet<ErrorCode> = new Set([
  'INTERNAL',
  'STORAGE_FULL',
  'STORAGE_FAILED',
  'PROCESS_LIMIT',
]);

export const errorReplySchema = z.object({
  error: z.object({ code: z.string().max(TEXT_LIMIT), message: z.string().max(ERROR_LIMIT) }),
});

/** A message as JSON has it. */
export type Sent<Schema extends z.ZodType> = z.input<Schema>;
export type Welcome = z.output<typeof welcomeSchema>;
