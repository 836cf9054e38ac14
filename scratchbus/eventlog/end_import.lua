-- Records that no import is at work, unless another one has begun.

if redis.call('HGET', IMPORTING, 'token') == TOKEN then redis.call('DEL', IMPORTING) end
return {1}
