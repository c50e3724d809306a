import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { jsonWithTexts } from './json-text.js';
import type { Timer } from '../../shared/base/runtime/runtime.js';
import { ClientLine } from './client-line.js';
import type { DeliverySetting } from './delivery-limits.js';
import type { DeliverBody } from './dialect.js';
import { logFailure } from './log-failure.js';
import { sendError } from './send-error.js';

const JSON_TYPE = 'application/json; charset=utf-8';

/** Implements DeliverBody. JSON may begin with newlines, so newlines can keep the connection alive. */
export function createDeliverBody(setting: DeliverySetting): DeliverBody {
  const { limits, runtime, log } = setting;
  return async (request, reply, dialect, make) => {
    const line = new ClientLine(request, reply, setting);
    let sign: Timer;
    const giveSign = (): void => {
      line.begin({ 'content-type': JSON_TYPE });
      if (!line.isBlocked) line.write('\n');
      sign = runtime.after(limits.bodyNewlineMs, giveSign);
    };
    sign = runtime.after(limits.bodyHeadersMs, giveSign);
    try {
      const body = jsonWithTexts(await make(line.signal, line.watch));
      sign.cancel();
      if (line.hasBegun) await line.end(body);
      else if (line.signal.aborted) reply.hijack();
      else await reply.code(200).type(JSON_TYPE).send(body);
    } catch (thrown) {
      sign.cancel();
      logFailure(log, request, thrown, line.signal.aborted);
      // A client would take an error under status 200 for an answer, but not a broken connection.
      if (line.hasBegun || line.signal.aborted) {
        if (!line.hasBegun) reply.hijack();
        line.leave();
      } else await sendError(reply, toOdmoeError(thrown), dialect);
    }
  };
}
