import assert from 'node:assert/strict';
import { dialledHttp } from '../../cli/client/ask-status.js';

describe('the address of the HTTP API in a status', () => {
  it('is one that this host can open where main serves every network', () => {
    assert.equal(dialledHttp('0.0.0.0:7680', '192.168.1.10:7600'), '192.168.1.10:7680');
    assert.equal(dialledHttp('[::]:7680', '[fd00::1]:7600'), '[fd00::1]:7680');
    assert.equal(dialledHttp('0.0.0.0:7680', 'unix:/state/odmoe/home/control.sock'), '127.0.0.1:7680');
  });

  it('is what main says where that is an address, or nothing', () => {
    assert.equal(dialledHttp('127.0.0.1:7680', '192.168.1.10:7600'), '127.0.0.1:7680');
    assert.equal(dialledHttp('', '192.168.1.10:7600'), '');
  });
});
