import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { KEY_LENGTH_RANGE } from '../access/api-keys.js';
import { sessionCookie, sessionTokenOf } from '../access/key-sessions.js';
import type { RegisterRoutes } from '../http-api-context.js';

const BODY_LIMIT_BYTES = 4096;
const BODY = z.strictObject({ key: z.string().max(KEY_LENGTH_RANGE.most) });

/** POST /cluster/session takes a key and sets a cookie that replaces it; DELETE ends the session. Neither needs an API key in the headers. */
export const registerSession: RegisterRoutes = (app, { sessions }) => {
  app.post('/cluster/session', { config: { open: true }, bodyLimit: BODY_LIMIT_BYTES }, (request, reply) => {
    const body = BODY.safeParse(request.body);
    if (!body.success) {
      throw new OdmoeError(
        'REQUEST_INVALID',
        `the body must be {"key": "..."}, a text of up to ${KEY_LENGTH_RANGE.most} characters`,
      );
    }
    const token = sessions.begin(body.data.key);
    if (token === null) throw new OdmoeError('UNAUTHORIZED', 'the API key is none that this cluster knows');
    return answered(reply, token);
  });
  app.delete('/cluster/session', { config: { open: true } }, (request, reply) => {
    sessions.end(sessionTokenOf(request.headers));
    return answered(reply, null);
  });
};

function answered(reply: FastifyReply, token: string | null): FastifyReply {
  return reply
    .code(204)
    .headers({ 'set-cookie': sessionCookie(token), 'cache-control': 'no-store' })
    .send();
}
